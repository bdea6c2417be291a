// SPDX-License-Identifier: Apache-2.0

package ecmp

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

	"fairlead.io/fairlead/lab/netlab"
)

// hop is a next hop.
type hop = netlab.NextHop

// hops are the next hops of a route, sorted by gateway; empty: no route.
type hops []hop

func newHops(list []hop) hops {
	slices.SortFunc(list, func(a, b hop) int { return a.Gateway.Compare(b.Gateway) })
	return list
}

// equalHops are next hops of equal weight.
func equalHops(gateways ...netip.Addr) hops {
	var list []hop
	for _, g := range gateways {
		list = append(list, hop{Gateway: g, Weight: 1})
	}
	return newHops(list)
}

func (h hops) equal(o hops) bool { return slices.Equal(h, o) }

func (h hops) contain(gateway netip.Addr) bool {
	return slices.ContainsFunc(h, func(hop hop) bool { return hop.Gateway == gateway })
}

// String lists the next hops.
func (h hops) String() string {
	if len(h) == 0 {
		return "no route"
	}
	var parts []string
	for _, hop := range h {
		parts = append(parts, hop.String())
	}
	return strings.Join(parts, ", ")
}

// routeEvent is a change of the next hops of a prefix.
type routeEvent struct {
	at     time.Time // when the notification was received
	prefix netip.Prefix
	hops   hops
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

// routeWatcher records every state of the routes to some prefixes in the main
// table. Routes that use nexthop objects (FRR) are notified with the objects' next
// hops as long as net.ipv4.nexthop_compat_mode is 1, the default. Its methods may
// be called concurrently.
type routeWatcher struct {
	handle   *netlink.Handle
	nexthops *nl.NetlinkSocket
	quit     chan struct{}
	running  sync.WaitGroup

	mu      sync.Mutex
	routes  map[routeKey]hops
	current map[netip.Prefix]hops
	events  []routeEvent
	changed chan struct{} // closed and replaced at every change
	err     error
}

type routeKey struct {
	prefix netip.Prefix
	metric int
}

// watchRoutes watches the calling thread's network namespace.
func watchRoutes(prefixes ...netip.Prefix) (w *routeWatcher, err error) {
	w = &routeWatcher{quit: make(chan struct{}), current: map[netip.Prefix]hops{}, changed: make(chan struct{})}
	for _, p := range prefixes {
		w.current[p] = nil
	}
	if w.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	updates := make(chan netlink.RouteUpdate)
	err = netlink.RouteSubscribeWithOptions(updates, w.quit, netlink.RouteSubscribeOptions{
		ReceiveBufferSize: routeBuffer, ReceiveBufferForceSize: true, ErrorCallback: w.fail,
	})
	if err != nil {
		w.handle.Close()
		return nil, fmt.Errorf("route notifications: %w", err)
	}
	if w.nexthops, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_NEXTHOP); err != nil {
		close(w.quit)
		w.handle.Close()
		return nil, fmt.Errorf("nexthop notifications: %w", err)
	}
	w.list()
	w.events = nil // the initial state is none
	objects := make(chan struct{}, 1)
	w.running.Go(func() { w.followNexthops(objects) })
	w.running.Go(func() { w.follow(updates, objects) })
	if w.err != nil {
		w.close()
		return nil, w.err
	}
	return w, nil
}

// follow applies notifications until close.
func (w *routeWatcher) follow(updates <-chan netlink.RouteUpdate, objects <-chan struct{}) {
	var relist <-chan time.Time
	for {
		select {
		case u, open := <-updates:
			if !open {
				return
			}
			w.mu.Lock()
			w.apply(u.Type == unix.RTM_DELROUTE, &u.Route)
			w.publish(time.Now())
			w.mu.Unlock()
		case <-objects:
			relist = time.After(relistDelay)
		case <-relist:
			w.list()
		}
	}
}

// followNexthops triggers a new list after notifications of nexthop objects.
func (w *routeWatcher) followNexthops(objects chan<- struct{}) {
	for {
		if _, _, err := w.nexthops.Receive(); err != nil {
			w.fail(err)
			return
		}
		select {
		case objects <- struct{}{}:
		default:
		}
	}
}

// list reads all routes.
func (w *routeWatcher) list() {
	main := &netlink.Route{Table: unix.RT_TABLE_MAIN}
	routes, err := w.handle.RouteListFiltered(netlink.FAMILY_ALL, main, netlink.RT_FILTER_TABLE)
	for errors.Is(err, netlink.ErrDumpInterrupted) {
		routes, err = w.handle.RouteListFiltered(netlink.FAMILY_ALL, main, netlink.RT_FILTER_TABLE)
	}
	if err != nil {
		w.fail(err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.routes = map[routeKey]hops{}
	for i := range routes {
		w.apply(false, &routes[i])
	}
	w.publish(time.Now())
}

// apply updates the table. A deletion may name some next hops of an IPv6 route,
// each of which is a route of its own.
func (w *routeWatcher) apply(deleted bool, r *netlink.Route) {
	if r.Table != unix.RT_TABLE_MAIN || r.Type != unix.RTN_UNICAST || r.Dst == nil {
		return
	}
	address, _ := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	key, named := routeKey{netip.PrefixFrom(address, bits), r.Priority}, routeHops(r)
	if !deleted {
		w.routes[key] = named
		return
	}
	var left hops
	if address.Is6() {
		left = slices.DeleteFunc(slices.Clone(w.routes[key]), func(h hop) bool { return named.contain(h.Gateway) })
	}
	if w.routes[key] = left; len(left) == 0 {
		delete(w.routes, key)
	}
}

func routeHops(r *netlink.Route) hops {
	return newHops(slices.DeleteFunc(netlab.NextHops(r), func(h hop) bool { return !h.Gateway.IsValid() }))
}

// publish records an event for every prefix whose next hops have changed. The
// caller holds the lock.
func (w *routeWatcher) publish(at time.Time) {
	changed := false
	for prefix, old := range w.current {
		if now := w.lookup(prefix); !now.equal(old) {
			w.current[prefix] = now
			w.events = append(w.events, routeEvent{at, prefix, now})
			changed = true
		}
	}
	if changed {
		w.wake()
	}
}

// lookup returns the next hops of the route with the lowest metric.
func (w *routeWatcher) lookup(prefix netip.Prefix) hops {
	var best hops
	metric, found := 0, false
	for key, h := range w.routes {
		if key.prefix == prefix && (!found || key.metric < metric) {
			best, metric, found = h, key.metric, true
		}
	}
	return best
}

// wake wakes those in await. The caller holds the lock.
func (w *routeWatcher) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *routeWatcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = fmt.Errorf("route notifications: %w", err)
	w.wake()
}

// hops returns the next hops of a watched prefix.
func (w *routeWatcher) hops(prefix netip.Prefix) hops {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current[prefix]
}

// take returns the events since the last call, and the error that ended the watch.
func (w *routeWatcher) take() ([]routeEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events, w.err
}

// await waits until all prefixes have these next hops. If ctx ends before, the
// error names the differences.
func (w *routeWatcher) await(ctx context.Context, want map[netip.Prefix]hops) error {
	for {
		different, changed, err := w.compare(want)
		if err != nil || different == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(different, ctx.Err())
		}
	}
}

// compare returns the differences, and a channel that is closed at the next change.
func (w *routeWatcher) compare(want map[netip.Prefix]hops) (different error, changed <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for prefix, hops := range want {
		if now := w.current[prefix]; !now.equal(hops) {
			different = errors.Join(different, fmt.Errorf("%s: %s, want %s", prefix, now, hops))
		}
	}
	return different, w.changed, w.err
}

func (w *routeWatcher) close() {
	close(w.quit)
	w.nexthops.Close()
	w.running.Wait()
	w.handle.Close()
}
