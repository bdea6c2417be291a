// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/gobgp"
)

// hops are the node's own addresses on the way to a peer, as next hops; the zero
// Addr where there is none.
type hops struct{ v4, v6 netip.Addr }

// ownHops are the session's own address, and that of the other family on the
// interface which leads to the peer.
func ownHops(peer, local netip.Addr) hops {
	if local.Is4() {
		return hops{v4: local, v6: onInterfaceTo(peer, netlink.FAMILY_V6)}
	}
	return hops{v4: onInterfaceTo(peer, netlink.FAMILY_V4), v6: local}
}

// onInterfaceTo is the node's address of a family on the interface that leads to
// peer.
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

// unusable are the flags of addresses that others can't reach yet or soon.
const unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED | unix.IFA_F_TEMPORARY

// choose returns the first address that others can reach. One with its subnet goes
// before a host's, which may well be a VIP.
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

// resolve gives routes the next hops that they have towards the peer. It returns
// why others are left out, if any are.
func (h hops) resolve(routes []bgp.Route, open *gobgp.Open) (resolved []bgp.Route, leftOut int, why string) {
	resolved = make([]bgp.Route, 0, len(routes))
	for _, route := range routes {
		reason := ""
		if route.NextHop, reason = h.of(&route, open); reason != "" {
			leftOut, why = leftOut+1, reason
			continue
		}
		resolved = append(resolved, route)
	}
	return resolved, leftOut, why
}

// of is the next hop of a route, or why it has none.
func (h hops) of(route *bgp.Route, open *gobgp.Open) (netip.Addr, string) {
	hop := route.NextHop
	if route.Prefix.Addr().Is6() {
		if !hop.IsValid() {
			hop = h.v6
		}
		switch {
		case !open.IPv6:
			return hop, "the peer takes no IPv6 routes"
		case !hop.IsValid():
			return hop, "no IPv6 address of the node's own on the way to the peer"
		}
		return hop, ""
	}
	if !hop.IsValid() {
		hop = h.v4
	}
	if !hop.IsValid() && open.IPv4OverIPv6 {
		hop = h.v6
	}
	switch {
	case !open.IPv4:
		return hop, "the peer takes no IPv4 routes"
	case !hop.IsValid():
		return hop, "no IPv4 address of the node's own on the way to the peer, which doesn't take IPv6 next hops (RFC 8950)"
	case hop.Is6() && !open.IPv4OverIPv6:
		return hop, "the peer doesn't take IPv6 next hops of IPv4 routes (RFC 8950)"
	}
	return hop, ""
}
