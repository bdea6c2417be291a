// SPDX-License-Identifier: Apache-2.0

// Package routehook has the routes to a node's VIPs changed by a program, where no router
// speaks BGP: in a cloud's route table, or in a router with static routes. The agent runs
// a Hook in place of a BGP speaker: package announce decides which routes there are.
package routehook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/wait"
)

// The program's first argument.
const (
	add    = "add"
	remove = "remove"
)

// Recorder records when calls for a prefix begin to fail, and when they succeed again.
type Recorder interface {
	RouteHookFailed(prefix netip.Prefix, reason string)
	RouteHookRecovered(prefix netip.Prefix)
}

// Config configures a Hook.
type Config struct {
	// Program is the path of the program, which is run as "PROGRAM add PREFIX" and "PROGRAM
	// remove PREFIX", without a shell.
	Program string
	// Timeout is how long a call may take: then its process group is killed.
	Timeout time.Duration
	// Interval is the time after which the program is called again for a route that it has added,
	// as another balancer may have replaced or removed it since.
	Interval time.Duration
	// Node is the node's name, Address its address in the family of a prefix, invalid if it
	// has none: the program's FAIRLEAD_NODE and FAIRLEAD_ADDRESS.
	Node    string
	Address func(prefix netip.Prefix) netip.Addr
	// File has the prefixes of routes that may be there, one in a line; empty for none. The next
	// Hook begins with them.
	File string
	// Settle is how long these stay though they aren't wanted yet: services and the health of their
	// backends take some time to be known.
	Settle time.Duration
	Events Recorder
	Log    *slog.Logger
}

// Hook runs the program, one call at a time, until the calls have made the routes of the
// last Set, and adds these again after the interval. Its methods may be called concurrently.
type Hook struct {
	Config
	stop  context.CancelFunc
	ended chan struct{} // closed when the last call has ended
	// version counts changes of the fields below.
	version wait.Value[uint64]

	mu sync.Mutex
	// routes are those that are wanted, or may be there.
	routes map[netip.Prefix]*route
	// failures counts the calls that failed.
	failures uint64
	// started is set by the first Set: nothing is called before.
	started, closed bool

	// recorded are the prefixes in the file; only run uses it.
	recorded map[netip.Prefix]bool
}

// route is the state of one prefix.
type route struct {
	wanted bool
	// tried is set when the first call begins: from then on the route may be there. done is
	// set while the last call that is wanted has succeeded.
	tried, done bool
	// failures counts the calls that failed in a row, the last one for reason; next is when
	// the next call is due.
	failures int
	reason   string
	next     time.Time
}

// verb returns the verb of the wanted call.
func (r *route) verb() string {
	if r.wanted {
		return add
	}
	return remove
}

// retry is the pause after calls that failed.
var retry = wait.Backoff{First: time.Second, Max: time.Minute, Jitter: 0.25}

// Open returns a Hook with the routes of an earlier one, which are removed unless they are wanted.
// Close or Abandon ends it.
func Open(c Config) (*Hook, error) {
	ctx, stop := context.WithCancel(context.Background())
	h := &Hook{Config: c, stop: stop, ended: make(chan struct{}), routes: map[netip.Prefix]*route{}}
	if err := h.load(); err != nil {
		stop()
		return nil, fmt.Errorf("route hook: %w", err)
	}
	go h.run(ctx)
	return h, nil
}

// change changes the routes, and wakes their waiters.
func (h *Hook) change(do func()) {
	h.mu.Lock()
	do()
	h.mu.Unlock()
	h.version.Modify(func(n *uint64) { *n++ })
}

// Set implements announce.Speaker. It doesn't wait for the calls.
func (h *Hook) Set(routes []bgp.Route) (err error) {
	h.change(func() {
		if h.closed {
			err = errors.New("route hook closed")
			return
		}
		h.set(routes)
		h.started = true
	})
	return err
}

// set makes routes all that are wanted. A route that a call may have added has to be removed,
// others are forgotten.
func (h *Hook) set(routes []bgp.Route) {
	wanted := make(map[netip.Prefix]bool, len(routes))
	for i := range routes {
		prefix := routes[i].Prefix
		wanted[prefix] = true
		if h.routes[prefix] == nil {
			h.routes[prefix] = &route{wanted: true}
		}
	}
	for prefix, r := range h.routes {
		if r.wanted != wanted[prefix] {
			*r = route{wanted: wanted[prefix], tried: r.tried}
		}
		if !r.wanted && !r.tried {
			delete(h.routes, prefix)
		}
	}
}

// Configure implements announce.Speaker: there are no peers.
func (h *Hook) Configure(context.Context, []bgp.Peer) error { return nil }

// Peers are none.
func (h *Hook) Peers() []bgp.PeerState { return nil }

// Close removes all routes and ends the calls. The error names the routes that aren't
// removed when ctx ends.
func (h *Hook) Close(ctx context.Context) error {
	closed := false
	h.change(func() {
		if closed, h.closed = h.closed, true; !closed {
			h.set(nil)
			h.started = true
			for _, r := range h.routes {
				r.next = time.Time{}
			}
		}
	})
	if closed {
		return nil
	}
	_, _ = h.version.Await(ctx, func(uint64) bool { return len(h.State().Pending) == 0 })
	h.end()
	var errs []error
	for _, p := range h.State().Pending {
		errs = append(errs, fmt.Errorf("route %s: %s", p.Prefix, cmp.Or(p.Reason, "not removed in time")))
	}
	return errors.Join(errs...)
}

// Abandon ends the calls, and leaves the routes to the next agent.
func (h *Hook) Abandon() {
	h.change(func() { h.closed = true })
	h.end()
}

// end ends the calls, the one under way by a signal.
func (h *Hook) end() {
	h.stop()
	<-h.ended
}

// run makes calls until ctx ends.
func (h *Hook) run(ctx context.Context) {
	defer close(h.ended)
	for ctx.Err() == nil {
		_, changed := h.version.Watch()
		due, next := h.begin(time.Now())
		if due.prefix.IsValid() {
			err := h.record(due.prefix)
			if err == nil {
				err = h.call(ctx, due)
			}
			h.finish(ctx, due, err)
			continue
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-changed:
		case <-timer:
		case <-ctx.Done():
		}
	}
}

// call is one call of the program.
type call struct {
	verb   string
	prefix netip.Prefix
	// again says that the last call succeeded, too.
	again bool
}

// begin returns the call that has been due longest. If none is due, the call is zero and next
// is when one will be; the zero Time is never.
func (h *Hook) begin(now time.Time) (due call, next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started {
		return call{}, time.Time{}
	}
	var first *route
	for _, prefix := range slices.SortedFunc(maps.Keys(h.routes), netip.Prefix.Compare) {
		if r := h.routes[prefix]; first == nil || r.next.Before(first.next) {
			first, due = r, call{r.verb(), prefix, r.done}
		}
	}
	switch {
	case first == nil:
		return call{}, time.Time{}
	case first.next.After(now):
		return call{}, first.next
	}
	first.tried = true
	return due, time.Time{}
}

// finish records the outcome of a call, unless it was ended by ctx.
func (h *Hook) finish(ctx context.Context, done call, err error) {
	if ctx.Err() != nil {
		return
	}
	failed, recovered, removed := false, false, false
	h.change(func() {
		if err != nil {
			h.failures++
		}
		r := h.routes[done.prefix]
		switch {
		case r == nil || r.verb() != done.verb: // changed meanwhile: another call is due
		case err != nil:
			failed = r.failures == 0
			r.failures++
			r.done = false
			r.reason, r.next = err.Error(), time.Now().Add(retry.Delay(r.failures))
		default:
			recovered = r.failures > 0
			*r = route{wanted: r.wanted, tried: true, done: true, next: time.Now().Add(h.Interval)}
			if !r.wanted {
				delete(h.routes, done.prefix)
				removed = true
			}
		}
	})
	if removed {
		if err := h.erase(done.prefix); err != nil { // a route too many: the next Hook removes it again
			h.Log.Warn("routes not recorded", slog.Any("error", err))
		}
	}
	switch {
	case failed:
		h.Events.RouteHookFailed(done.prefix, fmt.Sprintf("%s: %s", done.verb, err))
	case recovered:
		h.Events.RouteHookRecovered(done.prefix)
	}
}

// State is the state of a Hook's routes.
type State struct {
	// Pending are the routes whose wanted call hasn't succeeded, sorted by prefix: it is due,
	// under way, or failing.
	Pending []Pending
	// Failures counts the calls that failed.
	Failures uint64
}

// Pending is a route that isn't yet as it is wanted.
type Pending struct {
	Prefix netip.Prefix
	// Reason is why the last call failed, after its verb; empty before the first one has.
	// NextTry is when the next one is due, zero without a failure.
	Reason  string
	NextTry time.Time
}

// State returns the state of this moment.
func (h *Hook) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := State{Failures: h.failures}
	for _, prefix := range slices.SortedFunc(maps.Keys(h.routes), netip.Prefix.Compare) {
		r := h.routes[prefix]
		if r.done {
			continue
		}
		p := Pending{Prefix: prefix, NextTry: r.next}
		if r.failures > 0 {
			p.Reason = r.verb() + ": " + r.reason
		}
		now.Pending = append(now.Pending, p)
	}
	return now
}
