// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

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

// Close gives the table back.
func (t *Table) Close() { t.handle.Close() }

// Via returns the names of the hosts to which the route to exactly this prefix
// leads, sorted; none if there is no such route. A next hop that is no host of
// the lab is named by its address.
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
	// Of several the kernel takes the one of the lowest metric.
	var names []string
	for i := range routes {
		if i == 0 || routes[i].Priority < routes[0].Priority {
			names, routes[0] = t.Names(&routes[i]), routes[i]
		}
	}
	return names, nil
}

// Names returns the names of a route's next hops, sorted, as Via does; one whose
// weight isn't 1 has it behind its name, as in "lb1*2". The kernel spells out next
// hop objects, which some routers use, unless it is told not to
// (net.ipv4.nexthop_compat_mode).
func (t *Table) Names(r *netlink.Route) []string {
	hops := r.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{Gw: r.Gw, Via: r.Via}}
	}
	var names []string
	for _, hop := range hops {
		gateway, _ := netip.AddrFromSlice(hop.Gw)
		if via, ok := hop.Via.(*netlink.Via); ok {
			gateway, _ = netip.AddrFromSlice(via.Addr) // IPv4 by way of IPv6
		}
		gateway = gateway.Unmap()
		name, known := t.names[gateway]
		if !known {
			name = gateway.String()
		}
		if hop.Hops > 0 {
			name = fmt.Sprintf("%s*%d", name, hop.Hops+1)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// routePause is between two looks at a table.
const routePause = 5 * time.Millisecond

// AwaitRoute returns when a host's route to the prefix leads to exactly these
// hosts, or with what it has instead when ctx ends. No hosts means no route.
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
		pause(ctx, routePause)
	}
}

// awaitRoutes returns when everything has been learned.
func (l *Lab) awaitRoutes(ctx context.Context, routes []LearnedRoute) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, r := range routes {
		l.labs.progress("waiting for the route of %s to %s", r.Host, r.Prefix)
		if err := l.AwaitRoute(ctx, r); err != nil {
			return errors.Join(l.complaints(), err)
		}
	}
	return nil
}
