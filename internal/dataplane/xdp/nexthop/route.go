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
	// err says that the kernel couldn't be asked; the rest is then empty.
	err error
	// prefix and table tell which entry matched. The prefix is invalid where the
	// kernel doesn't tell: no route, and refusing routes.
	prefix netip.Prefix
	table  int
	// source is the route's preferred source address, or invalid.
	source netip.Addr
	// mtu is the route's own MTU, or 0.
	mtu int
	// encapsulated says that the kernel would add a header of the route (lwtunnel).
	encapsulated bool
	// paths are the next hops: one, or several for ECMP. They are in the order of
	// their gateways and interfaces, not in the kernel's, which for IPv6 begins
	// with another one for each destination.
	paths []path
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
func (p path) next(t Target) netip.Addr {
	if p.gateway.IsValid() {
		return p.gateway
	}
	return t.Address
}

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
		out.paths = []path{{r.LinkIndex, gateway(r.Gw, r.Via), unusable(r.Flags)}}
	}
	for _, p := range r.MultiPath {
		out.paths = append(out.paths, path{p.LinkIndex, gateway(p.Gw, p.Via), unusable(p.Flags)})
		out.encapsulated = out.encapsulated || p.Encap != nil
	}
	slices.SortStableFunc(out.paths, func(a, b path) int {
		return cmp.Or(a.gateway.Compare(b.gateway), cmp.Compare(a.index, b.index))
	})
	return out
}

func unusable(flags int) bool { return flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0 }

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

// refusal says why nothing can be sent to address along the route, or nil.
func (r *route) refusal(address netip.Addr) error {
	if r.encapsulated {
		return indirect{fmt.Errorf("route to %s adds an encapsulation, which XDP doesn't write", address)}
	}
	switch r.kind {
	case unix.RTN_UNICAST:
		return nil
	case unix.RTN_UNSPEC:
		return fmt.Errorf("no route to %s", address)
	case unix.RTN_LOCAL:
		return fmt.Errorf("%s is an address of this machine", address)
	case unix.RTN_BLACKHOLE:
		return fmt.Errorf("route to %s is a blackhole", address)
	case unix.RTN_UNREACHABLE:
		return fmt.Errorf("route to %s says unreachable", address)
	case unix.RTN_PROHIBIT:
		return fmt.Errorf("route to %s says prohibited", address)
	}
	return fmt.Errorf("%s is not the address of a single machine", address)
}
