// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// orders are what the Announcer was told by those who run it.
type orders struct {
	config *bgp.Config
	// began is when the data plane was put to work; zero before.
	began    time.Time
	stopping bool
	// moves are the services that are about to be drained.
	moves map[string]*move
	// given counts orders.
	given uint64
}

// move is one service on its way elsewhere.
type move struct {
	// wanted counts those who want it.
	wanted int
	// ended is closed when an operator has thought better of it.
	ended chan struct{}
}

func (o *orders) working() bool { return !o.began.IsZero() }

// moving are the names of the services that are about to be drained.
func (o *orders) moving() map[string]bool {
	names := make(map[string]bool, len(o.moves))
	for name := range o.moves {
		names[name] = true
	}
	return names
}

// order changes the orders, and returns how many there are.
func (a *Announcer) order(change func(o *orders)) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.orders)
	a.orders.given++
	close(a.ordered)
	a.ordered = make(chan struct{})
	return a.orders.given
}

// watchOrders returns the orders, and a channel that is closed when they change.
func (a *Announcer) watchOrders() (orders, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.orders
	o.moves = maps.Clone(o.moves)
	return o, a.ordered
}

// await waits until a plan that follows an order meets a condition. It returns
// the plan, or the context's error.
func (a *Announcer) await(ctx context.Context, order uint64, holds func(Plan) bool) (Plan, error) {
	for {
		a.mu.Lock()
		plan, heard, planned := a.plan, a.heard, a.planned
		a.mu.Unlock()
		if heard >= order && holds(plan) {
			return plan, nil
		}
		select {
		case <-planned:
		case <-ctx.Done():
			return plan, context.Cause(ctx)
		}
	}
}

func anyway(Plan) bool { return true }

// Begin says that the data plane has been put to work. Nothing is announced, and
// no session begun, before.
func (a *Announcer) Begin() { a.order(func(o *orders) { o.began = time.Now() }) }

// Configure takes over a changed configuration, whose Local is the same.
func (a *Announcer) Configure(c *bgp.Config) { a.order(func(o *orders) { o.config = c }) }

// Sync waits until what is known now has been decided on and told the speaker.
func (a *Announcer) Sync(ctx context.Context) error {
	_, err := a.await(ctx, a.order(func(*orders) {}), anyway)
	return err
}

// Stop moves everything away: it returns when peers have been asked to prefer
// other routes and all have been withdrawn, or ctx ends. Nothing is announced any
// more.
func (a *Announcer) Stop(ctx context.Context) error {
	_, err := a.await(ctx, a.order(func(o *orders) { o.stopping = true }), func(p Plan) bool {
		return !slices.ContainsFunc(p.Decisions, func(d Decision) bool { return d.Announced })
	})
	return err
}

// Move moves the traffic of services away that are about to be drained, or to go,
// as far as no other service keeps their addresses announced: until then packets
// have to be served, or new flows would be lost. It returns when routers have had
// time to follow. The caller takes the services away and then calls done.
func (a *Announcer) Move(ctx context.Context, services ...string) (done func(), err error) {
	moving := make(map[string]*move, len(services))
	order := a.order(func(o *orders) {
		for _, service := range services {
			m := o.moves[service]
			if m == nil {
				m = &move{ended: make(chan struct{})}
				o.moves[service] = m
			}
			m.wanted++
			moving[service] = m
		}
	})
	done = func() {
		a.order(func(o *orders) {
			for service, m := range moving {
				if m.wanted--; m.wanted == 0 && o.moves[service] == m {
					delete(o.moves, service)
				}
			}
		})
	}
	if err := a.leave(ctx, order, moving); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// leave waits until no route that will go brings the services packets, and then as
// long again as such routes stood, for routers to follow the withdrawal. An operator
// who thinks better of a single service ends the wait for it with an error; where
// there are several the others' goes on.
func (a *Announcer) leave(ctx context.Context, order uint64, moving map[string]*move) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for service, m := range moving {
		if len(moving) > 1 {
			break
		}
		go func() {
			select {
			case <-m.ended:
				cancel(fmt.Errorf("service %s: undrained meanwhile", service))
			case <-ctx.Done():
			}
		}()
	}
	concerned := func(service string) bool { return moving[service] != nil }
	goes := func(d Decision) bool { return d.Route.GracefulShutdown && slices.ContainsFunc(d.Services, concerned) }
	gone := func(p Plan) bool { return !slices.ContainsFunc(p.Decisions, goes) }
	first, err := a.await(ctx, order, anyway)
	if err != nil || gone(first) {
		return err
	}
	began := time.Now()
	if _, err := a.await(ctx, order, gone); err != nil {
		return err
	}
	select {
	case <-time.After(time.Since(began)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stay ends the moves of a service.
func (a *Announcer) Stay(service string) {
	a.order(func(o *orders) {
		if m := o.moves[service]; m != nil {
			close(m.ended)
			delete(o.moves, service)
		}
	})
}
