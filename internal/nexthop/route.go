// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// route is the entry of the kernel's forwarding table that matches an address.
type route struct {
	// kind is the route's type (RTN_UNICAST and so on), RTN_UNSPEC if there is
	// no route.
	kind int
	// err is why the kernel couldn't be queried; the rest is then empty.
	err error
	// prefix and table of the matching entry. The prefix is invalid where
	// the kernel doesn't return it: no route, and prohibiting routes.
	prefix netip.Prefix
	table  int
	// source is the route's preferred source address, or invalid.
	source netip.Addr
	// mtu is the route's own MTU, or 0.
	mtu int
	// encapsulated is set if the kernel would add a header of the route (lwtunnel).
	encapsulated bool
	// paths are the next hops: one, or several for ECMP. They are in the order of
	// their gateways and interfaces, not in the kernel's, which for IPv6 begins
	// with another one for each destination.
	paths []path
}

// equal reports whether two routes are the same; unknown ones are not.
func (r *route) equal(o *route) bool {
	return r.err == nil && o.err == nil && r.kind == o.kind && r.prefix == o.prefix && r.table == o.table &&
		r.source == o.source && r.mtu == o.mtu && r.encapsulated == o.encapsulated && slices.Equal(r.paths, o.paths)
}

// path is one next hop of a route.
type path struct {
	// index is the interface's.
	index int
	// gateway is the neighbour to send to, of either family (RFC 5549); it is
	// invalid if the destination itself is the neighbour.
	gateway netip.Addr
	// down means that the kernel doesn't use the path.
	down bool
}

// next returns the neighbour that packets to t are sent to.
func (p path) next(t Target) netip.Addr { return cmp.Or(p.gateway, t.Address) }

// noRoute turns the error of a look-up into a route. The kernel answers with an
// error number where the matching route refuses to forward.
func noRoute(err error) route {
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		return route{kind: unix.RTN_UNSPEC}
	case errors.Is(err, unix.EINVAL):
		return route{kind: unix.RTN_BLACKHOLE}
	case errors.Is(err, unix.EHOSTUNREACH):
		return route{kind: unix.RTN_UNREACHABLE}
	case errors.Is(err, unix.EACCES):
		return route{kind: unix.RTN_PROHIBIT}
	}
	return route{err: fmt.Errorf("route look-up: %w", err)}
}

func routeOf(r *netlink.Route) route {
	out := route{
		kind:         r.Type,
		table:        r.Table,
		source:       addressOf(r.Src),
		mtu:          r.MTU,
		encapsulated: r.Encap != nil,
	}
	if r.Dst != nil {
		bits, _ := r.Dst.Mask.Size()
		out.prefix = netip.PrefixFrom(addressOf(r.Dst.IP), bits)
	}
	if len(r.MultiPath) == 0 {
		out.paths = []path{{r.LinkIndex, gateway(r.Gw, r.Via), dead(r.Flags)}}
	}
	for _, p := range r.MultiPath {
		out.paths = append(out.paths, path{p.LinkIndex, gateway(p.Gw, p.Via), dead(p.Flags)})
		out.encapsulated = out.encapsulated || p.Encap != nil
	}
	slices.SortStableFunc(out.paths, func(a, b path) int {
		return cmp.Or(a.gateway.Compare(b.gateway), cmp.Compare(a.index, b.index))
	})
	return out
}

func dead(flags int) bool { return flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0 }

func gateway(gw net.IP, via netlink.Destination) netip.Addr {
	if v, ok := via.(*netlink.Via); ok {
		return addressOf(v.Addr)
	}
	return addressOf(gw)
}

// addressOf converts an address of netlink; nil becomes the invalid one.
func addressOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// unusable is why nothing can be sent to address along the route, or nil.
func (r *route) unusable(address netip.Addr) error {
	if r.encapsulated {
		return reason{fmt.Errorf("route to %s adds an encapsulation, which XDP doesn't write", address), errIndirect}
	}
	switch r.kind {
	case unix.RTN_UNICAST:
		return nil
	case unix.RTN_UNSPEC:
		return fmt.Errorf("%w to %s", ErrNoRoute, address)
	case unix.RTN_LOCAL:
		return reason{fmt.Errorf("%s is an address of this machine", address), ErrLocal}
	case unix.RTN_BLACKHOLE:
		return reason{fmt.Errorf("route to %s is a blackhole", address), ErrNoRoute}
	case unix.RTN_UNREACHABLE:
		return reason{fmt.Errorf("route to %s is unreachable", address), ErrNoRoute}
	case unix.RTN_PROHIBIT:
		return reason{fmt.Errorf("route to %s is prohibited", address), ErrNoRoute}
	}
	return fmt.Errorf("%s is not the address of a single machine", address)
}

// address is an address of this machine.
type address struct {
	index  int
	prefix netip.Prefix
	// secondary marks IPv4's secondary and IPv6's temporary addresses, which
	// share a flag; deprecated ones whose preferred lifetime is over.
	secondary, deprecated bool
}

// localAddress returns an address of netlink, and false if packets can't have
// it as their source: it is not usable yet, or only within this machine.
func localAddress(a netlink.Addr) (address, bool) {
	const unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
	if a.IPNet == nil || a.Scope >= unix.RT_SCOPE_HOST {
		return address{}, false
	}
	if a.Flags&unusable != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0 {
		return address{}, false
	}
	ones, _ := a.Mask.Size()
	return address{
		index:      a.LinkIndex,
		prefix:     netip.PrefixFrom(addressOf(a.IP), ones),
		secondary:  a.Flags&unix.IFA_F_SECONDARY != 0,
		deprecated: a.Flags&unix.IFA_F_DEPRECATED != 0,
	}, true
}

// sourceAddress picks the source address of packets that leave through the
// interface index by way of next to target, as the kernel does for a socket without
// an address if the route has no preference. For IPv4 that is an address whose
// network has the next hop, for IPv6 the rules 1 to 8 of RFC 6724 as far as they
// matter here. An address of another interface is the last resort (an interface
// without one, RFC 5549). The result is invalid if there is none.
func sourceAddress(all []address, index int, next, target netip.Addr) netip.Addr {
	var best netip.Addr
	var most suitability
	for _, a := range all {
		own := a.prefix.Addr()
		foreign := a.index != index
		if own.BitLen() != target.BitLen() || (foreign && own.IsLinkLocalUnicast()) {
			continue
		}
		towards := target
		if target.Is4() {
			towards = next
		}
		s := suitability{
			one(!foreign),
			one(own.IsLinkLocalUnicast() == target.IsLinkLocalUnicast()),
			one(!a.deprecated),
			one(!a.secondary),
			match(a.prefix, towards),
		}
		if !best.IsValid() || slices.Compare(s[:], most[:]) > 0 {
			best, most = own, s
		}
	}
	return best
}

// suitability holds how far an address meets each wish, the weightiest first.
type suitability [5]int

func one(met bool) int {
	if met {
		return 1
	}
	return 0
}

// match is how well an address of this machine suits: the length of the
// prefix that it has in common with towards, at most its own (RFC 6724, section
// 2.2). For IPv4 only the whole counts.
func match(own netip.Prefix, towards netip.Addr) int {
	if own.Addr().Is4() {
		return one(own.Contains(towards))
	}
	length := own.Bits()
	for length > 0 && !netip.PrefixFrom(own.Addr(), length).Contains(towards) {
		length--
	}
	return length
}
