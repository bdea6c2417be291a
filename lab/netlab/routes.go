// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/wait"
)

// NextHop is one of a route; Weight is its share of the flows, 1 by default.
type NextHop struct {
	Gateway netip.Addr
	Weight  int
}

// Hops are the next hops of a route, sorted by gateway; empty: no route.
type Hops []NextHop

// EqualHops are next hops of equal weight.
func EqualHops(gateways ...netip.Addr) (h Hops) {
	for _, g := range gateways {
		h = append(h, NextHop{Gateway: g, Weight: 1})
	}
	return h.sorted()
}

func (h Hops) sorted() Hops {
	slices.SortFunc(h, func(a, b NextHop) int { return a.Gateway.Compare(b.Gateway) })
	return h
}

// Contain reports whether a gateway is among the next hops.
func (h Hops) Contain(gateway netip.Addr) bool {
	return slices.ContainsFunc(h, func(hop NextHop) bool { return hop.Gateway == gateway })
}

// String is written as ip-route(8) does.
func (h NextHop) String() string { return fmt.Sprintf("via %s weight %d", h.Gateway, h.Weight) }

// String lists the next hops.
func (h Hops) String() string {
	if len(h) == 0 {
		return "no route"
	}
	var parts []string
	for _, hop := range h {
		parts = append(parts, hop.String())
	}
	return strings.Join(parts, ", ")
}

// RouteEvent is a change of the next hops of a prefix.
type RouteEvent struct {
	At     time.Time // when the notification was received
	Prefix netip.Prefix
	Hops   Hops
}

const (
	// routeBuffer is the size of the socket's receive buffer in bytes, for the time
	// in which the watcher isn't scheduled.
	routeBuffer = 8 << 20
	// relistDelay lets the kernel finish a notified change: deleting a nexthop
	// object removes its IPv4 routes, and shrinks groups, without a route
	// notification.
	relistDelay = 10 * time.Millisecond
)

// Routes follows the routes to some prefixes in a host's main table, and records each of
// their states. Routes that use nexthop objects (FRR) are notified with the objects' next
// hops as long as net.ipv4.nexthop_compat_mode is 1, the default. Its methods may be called
// concurrently.
type Routes struct {
	// names has the lab's hosts by their addresses.
	names    map[netip.Addr]string
	handle   *netlink.Handle
	nexthops *nl.NetlinkSocket
	quit     chan struct{}
	running  sync.WaitGroup
	state    wait.Value[routeState]
}

// routeState is the present state and the history of a Routes.
type routeState struct {
	routes  map[routeKey]Hops
	current map[netip.Prefix]Hops
	events  []RouteEvent
	err     error
}

type routeKey struct {
	prefix netip.Prefix
	metric int
}

// FollowRoutes follows a host's routes to some prefixes until Close.
func (l *Lab) FollowRoutes(host string, prefixes ...netip.Prefix) (*Routes, error) {
	r := &Routes{names: map[netip.Addr]string{}, quit: make(chan struct{})}
	for _, h := range l.State().Hosts {
		for _, a := range h.Addresses {
			r.names[a] = h.Name
		}
	}
	current := map[netip.Prefix]Hops{}
	for _, p := range prefixes {
		current[p] = nil
	}
	r.state.Set(routeState{current: current})
	if err := l.Do(host, r.open); err != nil {
		return nil, fmt.Errorf("host %s: routes: %w", host, err)
	}
	return r, nil
}

// open begins to follow the calling thread's network namespace.
func (r *Routes) open() (err error) {
	if r.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	updates := make(chan netlink.RouteUpdate)
	err = netlink.RouteSubscribeWithOptions(updates, r.quit, netlink.RouteSubscribeOptions{
		ReceiveBufferSize: routeBuffer, ReceiveBufferForceSize: true, ErrorCallback: r.fail,
	})
	if err == nil {
		r.nexthops, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_NEXTHOP)
	}
	if err != nil {
		close(r.quit)
		r.handle.Close()
		return err
	}
	r.list()
	_, err = r.Take() // the initial state isn't an event
	objects := make(chan struct{}, 1)
	r.running.Go(func() { r.followNexthops(objects) })
	r.running.Go(func() { r.follow(updates, objects) })
	if err != nil {
		r.Close()
	}
	return err
}

// follow applies notifications until Close.
func (r *Routes) follow(updates <-chan netlink.RouteUpdate, objects <-chan struct{}) {
	var relist <-chan time.Time
	for {
		select {
		case u, open := <-updates:
			if !open {
				return
			}
			r.state.Modify(func(s *routeState) {
				s.apply(u.Type == unix.RTM_DELROUTE, &u.Route)
				s.publish(time.Now())
			})
		case <-objects:
			relist = time.After(relistDelay)
		case <-relist:
			r.list()
		}
	}
}

// followNexthops triggers a new list after notifications of nexthop objects.
func (r *Routes) followNexthops(objects chan<- struct{}) {
	for {
		if _, _, err := r.nexthops.Receive(); err != nil {
			r.fail(err)
			return
		}
		wait.Signal(objects)
	}
}

// list reads all routes.
func (r *Routes) list() {
	main := &netlink.Route{Table: unix.RT_TABLE_MAIN}
	routes, err := r.handle.RouteListFiltered(netlink.FAMILY_ALL, main, netlink.RT_FILTER_TABLE)
	for errors.Is(err, netlink.ErrDumpInterrupted) {
		routes, err = r.handle.RouteListFiltered(netlink.FAMILY_ALL, main, netlink.RT_FILTER_TABLE)
	}
	if err != nil {
		r.fail(err)
		return
	}
	r.state.Modify(func(s *routeState) {
		s.routes = map[routeKey]Hops{}
		for i := range routes {
			s.apply(false, &routes[i])
		}
		s.publish(time.Now())
	})
}

// apply updates the table. A deletion may name some next hops of an IPv6 route,
// each of which is a route of its own.
func (s *routeState) apply(deleted bool, r *netlink.Route) {
	if r.Table != unix.RT_TABLE_MAIN || r.Type != unix.RTN_UNICAST || r.Dst == nil {
		return
	}
	address, _ := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	key, named := routeKey{netip.PrefixFrom(address, bits), r.Priority}, routeHops(r)
	if !deleted {
		s.routes[key] = named
		return
	}
	var left Hops
	if address.Is6() {
		left = slices.DeleteFunc(slices.Clone(s.routes[key]), func(h NextHop) bool { return named.Contain(h.Gateway) })
	}
	if s.routes[key] = left; len(left) == 0 {
		delete(s.routes, key)
	}
}

// routeHops returns the next hops with a gateway. The kernel lists the next hops of nexthop
// objects too, unless net.ipv4.nexthop_compat_mode is 0.
func routeHops(r *netlink.Route) (hops Hops) {
	paths := r.MultiPath
	if len(paths) == 0 {
		paths = []*netlink.NexthopInfo{{Gw: r.Gw, Via: r.Via}}
	}
	for _, p := range paths {
		gateway, ok := netip.AddrFromSlice(p.Gw)
		if via, isVia := p.Via.(*netlink.Via); isVia {
			gateway, ok = netip.AddrFromSlice(via.Addr) // an IPv6 gateway of an IPv4 route
		}
		if ok {
			hops = append(hops, NextHop{gateway.Unmap(), p.Hops + 1}) // the kernel stores weights less one
		}
	}
	return hops.sorted()
}

// publish records an event for every prefix whose next hops have changed.
func (s *routeState) publish(at time.Time) {
	for prefix, old := range s.current {
		if now := s.lookup(prefix); !slices.Equal(now, old) {
			s.current[prefix] = now
			s.events = append(s.events, RouteEvent{at, prefix, now})
		}
	}
}

// lookup returns the next hops of the route with the lowest metric.
func (s *routeState) lookup(prefix netip.Prefix) (best Hops) {
	metric, found := 0, false
	for key, h := range s.routes {
		if key.prefix == prefix && (!found || key.metric < metric) {
			best, metric, found = h, key.metric, true
		}
	}
	return best
}

func (r *Routes) fail(err error) {
	r.state.Modify(func(s *routeState) { s.err = fmt.Errorf("route notifications: %w", err) })
}

// Hops returns the next hops of a prefix.
func (r *Routes) Hops(prefix netip.Prefix) (hops Hops) {
	r.state.View(func(s *routeState) { hops = s.current[prefix] })
	return hops
}

// Via returns the sorted names of the next hops of a prefix.
func (r *Routes) Via(prefix netip.Prefix) []string { return r.Names(r.Hops(prefix)) }

// Names returns the sorted names of next hops; weights other than 1 follow the name, as in
// "lb1*2". A next hop outside of the lab is named by its address.
func (r *Routes) Names(hops Hops) (names []string) {
	for _, hop := range hops {
		name, known := r.names[hop.Gateway]
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

// Take returns the events since the last call, and the error that ended the observation.
func (r *Routes) Take() (events []RouteEvent, err error) {
	r.state.Modify(func(s *routeState) { events, err, s.events = s.events, s.err, nil })
	return events, err
}

// Await waits until all prefixes have these next hops. If ctx ends before, the error names
// the differences.
func (r *Routes) Await(ctx context.Context, want map[netip.Prefix]Hops) error {
	return r.await(ctx, func(s *routeState) (different error) {
		for prefix, hops := range want {
			if now := s.current[prefix]; !slices.Equal(now, hops) {
				different = errors.Join(different, fmt.Errorf("%s: %s, want %s", prefix, now, hops))
			}
		}
		return different
	})
}

// await waits until wrong returns nil, and returns its last error if ctx ends before.
func (r *Routes) await(ctx context.Context, wrong func(*routeState) error) error {
	for {
		_, changed := r.state.Watch()
		var different, failed error
		r.state.View(func(s *routeState) { different, failed = wrong(s), s.err })
		if failed != nil || different == nil {
			return failed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(different, ctx.Err())
		}
	}
}

// AwaitRoute waits until a host's route to the prefix has exactly these next hops; none
// means no route. If ctx ends, the error has the present ones.
func (l *Lab) AwaitRoute(ctx context.Context, r LearnedRoute) error {
	routes, err := l.FollowRoutes(r.Host, r.Prefix)
	if err != nil {
		return err
	}
	defer routes.Close()
	want := slices.Sorted(slices.Values(r.Via))
	return routes.await(ctx, func(s *routeState) error {
		if via := routes.Names(s.current[r.Prefix]); !slices.Equal(via, want) {
			return fmt.Errorf("host %s: route %s leads to %s, want %s", r.Host, r.Prefix, via, want)
		}
		return nil
	})
}

// Close ends the observation.
func (r *Routes) Close() {
	close(r.quit)
	r.nexthops.Close()
	r.running.Wait()
	r.handle.Close()
}
