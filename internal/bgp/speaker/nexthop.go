// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"cmp"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
)

// hops are the node's addresses towards a peer, one of each family; the zero Addr
// if there is none.
type hops struct{ v4, v6 netip.Addr }

// ownHops are the session's local address, and that of the other family on the
// interface towards the peer.
func ownHops(peer, local netip.Addr) hops {
	if local.Is4() {
		return hops{v4: local, v6: onInterfaceTo(peer, netlink.FAMILY_V6)}
	}
	return hops{v4: onInterfaceTo(peer, netlink.FAMILY_V4), v6: local}
}

// onInterfaceTo is the node's address of a family on the interface towards peer.
func onInterfaceTo(peer netip.Addr, family int) netip.Addr {
	routes, err := netlink.RouteGet(net.IP(peer.AsSlice()))
	if err != nil || len(routes) == 0 {
		return netip.Addr{}
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return netip.Addr{}
	}
	addrs, err := netlink.AddrList(link, family)
	if err != nil {
		return netip.Addr{}
	}
	return choose(addrs)
}

// unusable are the flags of addresses that can't be reached yet, or not for long.
const unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED | unix.IFA_F_TEMPORARY

// choose returns the first address that others can reach. It prefers one with a
// subnet to a host address, which may be a VIP.
func choose(addrs []netlink.Addr) (chosen netip.Addr) {
	for _, a := range addrs {
		addr, ok := netip.AddrFromSlice(a.IP)
		ones, bits := a.Mask.Size()
		switch {
		case !ok || a.Scope != unix.RT_SCOPE_UNIVERSE || a.Flags&unusable != 0:
		case ones < bits:
			return addr.Unmap()
		case !chosen.IsValid():
			chosen = addr.Unmap()
		}
	}
	return chosen
}

// resolve sets the routes' next hops towards the peer. It returns how many routes
// have none, and why.
func (h hops) resolve(routes []bgp.Route, open *session.Open) (resolved []bgp.Route, omitted int, reason string) {
	resolved = make([]bgp.Route, 0, len(routes))
	for _, route := range routes {
		hop, failure := h.nextHop(&route, open)
		if failure != "" {
			omitted, reason = omitted+1, failure
			continue
		}
		route.NextHop = hop
		resolved = append(resolved, route)
	}
	return resolved, omitted, reason
}

// nextHop is the next hop of a route, or why it has none.
func (h hops) nextHop(route *bgp.Route, open *session.Open) (hop netip.Addr, failure string) {
	if route.Prefix.Addr().Is6() {
		hop = cmp.Or(route.NextHop, h.v6)
		switch {
		case !open.IPv6:
			return hop, "the peer accepts no IPv6 routes"
		case !hop.IsValid():
			return hop, "the node has no IPv6 address on the interface towards the peer"
		}
		return hop, ""
	}
	hop = cmp.Or(route.NextHop, h.v4)
	if !hop.IsValid() && open.IPv4OverIPv6 {
		hop = h.v6
	}
	switch {
	case !open.IPv4:
		return hop, "the peer accepts no IPv4 routes"
	case !hop.IsValid():
		return hop, "the node has no IPv4 address on the interface towards the peer, and the peer accepts no IPv6 next hops for IPv4 routes (RFC 8950)"
	case hop.Is6() && !open.IPv4OverIPv6:
		return hop, "the peer accepts no IPv6 next hops for IPv4 routes (RFC 8950)"
	}
	return hop, ""
}
