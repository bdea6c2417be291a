// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// address adds a host's addresses and permanent neighbours.
func (b *builder) address(host *Host) error {
	return b.withHandle(host.Name, func(h *netlink.Handle) error {
		for _, a := range host.Loopback {
			if err := addAddress(h, "lo", netip.PrefixFrom(a, a.BitLen()), netip.Addr{}); err != nil {
				return err
			}
		}
		err := host.eachDevice(func(device string, addresses []netip.Prefix, peers []netip.Addr) error {
			for i, p := range addresses {
				var peer netip.Addr
				if len(peers) > 0 {
					peer = peers[i]
				}
				if err := addAddress(h, device, p, peer); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, n := range host.Neighbours {
			if err := addNeighbour(h, n); err != nil {
				return fmt.Errorf("neighbour %s: %w", n.Address, err)
			}
		}
		return nil
	})
}

// addAddress adds an address; with a peer, which may be the zero Addr, there is a route to
// the peer's address only.
func addAddress(h *netlink.Handle, name string, p netip.Prefix, peer netip.Addr) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(p)}
	if peer.IsValid() {
		addr.Peer = ipNet(hostPrefix(peer))
	}
	if p.Addr().Is6() {
		// Usable at once, without duplicate address detection.
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := h.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("interface %s: address %s: %w", name, p, err)
	}
	return nil
}

func addNeighbour(h *netlink.Handle, n Neighbour) error {
	link, err := h.LinkByName(n.Interface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", n.Interface, err)
	}
	return h.NeighSet(&netlink.Neigh{
		LinkIndex:    link.Attrs().Index,
		State:        netlink.NUD_PERMANENT,
		IP:           n.Address.AsSlice(),
		HardwareAddr: n.MAC[:],
	})
}

// route adds a host's routes.
func (b *builder) route(host *Host) error {
	return b.withHandle(host.Name, func(h *netlink.Handle) error {
		for _, r := range host.Routes {
			route, err := kernelRoute(h, r)
			if err == nil {
				err = h.RouteAdd(route)
			}
			if err != nil {
				return fmt.Errorf("route %s: %w", r.Destination, err)
			}
		}
		return nil
	})
}

// kernelRoute leaves interfaces that aren't given to the kernel.
func kernelRoute(h *netlink.Handle, r Route) (*netlink.Route, error) {
	route := &netlink.Route{Dst: ipNet(r.Destination)}
	if r.Device != "" {
		link, err := h.LinkByName(r.Device)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", r.Device, err)
		}
		route.LinkIndex = link.Attrs().Index
	}
	if r.Device != "" && len(r.Gateways) > 0 {
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	if len(r.Gateways) == 0 {
		route.Scope = netlink.SCOPE_LINK
	}
	if len(r.Gateways) == 1 {
		route.Gw = r.Gateways[0].AsSlice()
		return route, nil
	}
	for _, g := range r.Gateways {
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: g.AsSlice()})
	}
	return route, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Table reads the kernel's main routing table of one host. A Table is used by
// one goroutine at a time.
type Table struct {
	handle *netlink.Handle
	// names has the lab's hosts by their addresses.
	names map[netip.Addr]string
}

// Table opens the routing table of a host until Close.
func (l *Lab) Table(host string) (*Table, error) {
	state := l.State()
	h := state.Host(host)
	if h == nil {
		return nil, fmt.Errorf("lab %s: no host %s", state.Name, host)
	}
	t := &Table{names: map[netip.Addr]string{}}
	for _, other := range state.Hosts {
		for _, a := range other.Addresses {
			t.names[a] = other.Name
		}
	}
	ns, err := netns.GetFromPath(namespace(h.Namespace).path())
	if err != nil {
		return nil, fmt.Errorf("lab %s: host %s: %w", state.Name, host, err)
	}
	defer ns.Close()
	t.handle, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("lab %s: host %s: netlink: %w", state.Name, host, err)
	}
	return t, nil
}

// Close closes the table.
func (t *Table) Close() { t.handle.Close() }

// Via returns the sorted names of the next hops of the route to exactly this prefix;
// none if there is no route. A next hop outside of the lab is named by its address.
func (t *Table) Via(prefix netip.Prefix) ([]string, error) {
	family := unix.AF_INET
	if prefix.Addr().Is6() {
		family = unix.AF_INET6
	}
	filter := &netlink.Route{Dst: ipNet(prefix), Table: unix.RT_TABLE_MAIN}
	routes, err := t.handle.RouteListFiltered(family, filter, netlink.RT_FILTER_DST|netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("route %s: %w", prefix, err)
	}
	// The kernel uses the route with the lowest metric.
	var names []string
	for i := range routes {
		if i == 0 || routes[i].Priority < routes[0].Priority {
			names, routes[0] = t.Names(&routes[i]), routes[i]
		}
	}
	return names, nil
}

// Names returns the sorted names of a route's next hops; weights other than 1 follow
// the name, as in "lb1*2". The kernel lists the next hops of nexthop objects too,
// unless net.ipv4.nexthop_compat_mode is 0.
func (t *Table) Names(r *netlink.Route) []string {
	var names []string
	for _, hop := range NextHops(r) {
		name, known := t.names[hop.Gateway]
		if !known {
			name = hop.Gateway.String()
		}
		if hop.Weight > 1 {
			name = fmt.Sprintf("%s*%d", name, hop.Weight)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// NextHop is one of a route; Weight is its share of the flows, 1 by default. The zero
// Gateway is none.
type NextHop struct {
	Gateway netip.Addr
	Weight  int
}

// String is written as ip-route(8) does.
func (h NextHop) String() string { return fmt.Sprintf("via %s weight %d", h.Gateway, h.Weight) }

// NextHops returns the next hops of a route, at least one.
func NextHops(r *netlink.Route) (hops []NextHop) {
	paths := r.MultiPath
	if len(paths) == 0 {
		paths = []*netlink.NexthopInfo{{Gw: r.Gw, Via: r.Via}}
	}
	for _, p := range paths {
		gateway, _ := netip.AddrFromSlice(p.Gw)
		if via, ok := p.Via.(*netlink.Via); ok {
			gateway, _ = netip.AddrFromSlice(via.Addr) // an IPv6 gateway of an IPv4 route
		}
		hops = append(hops, NextHop{gateway.Unmap(), p.Hops + 1}) // the kernel stores weights less one
	}
	return hops
}

// routePoll is the time between two reads of a table.
const routePoll = 5 * time.Millisecond

// AwaitRoute waits until a host's route to the prefix has exactly these next hops; none
// means no route. If ctx ends, the error has the present ones.
func (l *Lab) AwaitRoute(ctx context.Context, r LearnedRoute) error {
	table, err := l.Table(r.Host)
	if err != nil {
		return err
	}
	defer table.Close()
	want := slices.Sorted(slices.Values(r.Via))
	for {
		via, err := table.Via(r.Prefix)
		if err != nil {
			return fmt.Errorf("host %s: %w", r.Host, err)
		}
		if slices.Equal(via, want) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("host %s: route %s leads to [%s], want [%s]: %w",
				r.Host, r.Prefix, strings.Join(via, " "), strings.Join(want, " "), ctx.Err())
		}
		_ = Sleep(ctx, routePoll)
	}
}

// awaitRoutes waits until all routes have been learned.
func (l *Lab) awaitRoutes(ctx context.Context, routes []LearnedRoute) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, r := range routes {
		l.labs.progress("waiting for the route of %s to %s", r.Host, r.Prefix)
		if err := l.AwaitRoute(ctx, r); err != nil {
			return errors.Join(l.unexpectedEnds(), err)
		}
	}
	return nil
}
