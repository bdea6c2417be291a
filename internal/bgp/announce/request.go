// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// requests are the agent's requests.
type requests struct {
	config *bgp.Config
	// began is when the data plane was attached; zero before.
	began time.Time
	// missing is the reason of SetMissing.
	missing  string
	stopping bool
	// drains are the services whose traffic is being moved away.
	drains map[string]*drain
	// given counts the requests.
	given uint64
}

// drain moves the traffic of one service away.
type drain struct {
	// wanted counts the calls of Drain that are not done.
	wanted int
	// ended is closed when the drain is cancelled.
	ended chan struct{}
}

func (o *requests) working() bool { return !o.began.IsZero() }

// request changes the requests, and returns how many there are. Watchers keep their copy
// of drains.
func (a *Announcer) request(change func(o *requests)) (given uint64) {
	a.requests.Modify(func(o *requests) {
		o.drains = maps.Clone(o.drains)
		if o.drains == nil {
			o.drains = map[string]*drain{}
		}
		change(o)
		o.given++
		given = o.given
	})
	return given
}

// await waits for a plan that includes a request and meets a condition, or the end of
// ctx.
func (a *Announcer) await(ctx context.Context, request uint64, holds func(Plan) bool) (Plan, error) {
	return a.latest.Await(ctx, func(p Plan) bool { return p.requests >= request && holds(p) })
}

func always(Plan) bool { return true }

// Begin reports that the data plane is attached. Nothing is announced, and no session
// begins, before.
func (a *Announcer) Begin() { a.request(func(o *requests) { o.began = time.Now() }) }

// SetMissing withdraws all routes while packets of a configured interface don't reach the
// data plane, for that reason; nil is that all do.
func (a *Announcer) SetMissing(reason error) {
	a.request(func(o *requests) {
		o.missing = ""
		if reason != nil {
			o.missing = strings.ReplaceAll(reason.Error(), "\n", "; ")
		}
	})
}

// Configure applies another configuration, whose Local is the same. An equal one
// changes nothing.
func (a *Announcer) Configure(c *bgp.Config) {
	a.request(func(o *requests) {
		if !reflect.DeepEqual(o.config, c) {
			o.config = c
		}
	})
}

// Sync waits until the speaker has the routes of the current input.
func (a *Announcer) Sync(ctx context.Context) error {
	_, err := a.await(ctx, a.request(func(*requests) {}), always)
	return err
}

// Stop moves all traffic away: all routes get GRACEFUL_SHUTDOWN and are then withdrawn.
// It returns when they are, or ctx ends.
func (a *Announcer) Stop(ctx context.Context) error {
	_, err := a.await(ctx, a.request(func(o *requests) { o.stopping = true }), func(p Plan) bool {
		return !slices.ContainsFunc(p.Decisions, func(d Decision) bool { return d.Announced })
	})
	return err
}

// Drain moves the traffic of services away that are about to be drained or removed, as
// far as no other service keeps their prefixes announced: until then the services must
// be served, or new flows would be lost. It returns when routers have had time to
// follow. The caller takes the services out and then calls done.
func (a *Announcer) Drain(ctx context.Context, services ...string) (done func(), err error) {
	return a.StartDrain(services...)(ctx)
}

// StartDrain begins a drain, so that CancelDrain can end it from now on. The caller has to
// call await, which returns as Drain does.
func (a *Announcer) StartDrain(services ...string) (await func(context.Context) (done func(), err error)) {
	drains := make(map[string]*drain, len(services))
	request := a.request(func(o *requests) {
		for _, service := range services {
			m := o.drains[service]
			if m == nil {
				m = &drain{ended: make(chan struct{})}
				o.drains[service] = m
			}
			m.wanted++
			drains[service] = m
		}
	})
	done := func() {
		a.request(func(o *requests) {
			for service, m := range drains {
				if m.wanted--; m.wanted == 0 && o.drains[service] == m {
					delete(o.drains, service)
				}
			}
		})
	}
	return func(ctx context.Context) (func(), error) {
		if err := a.leave(ctx, request, drains); err != nil {
			done()
			return nil, err
		}
		return done, nil
	}
}

// leave waits until no route with GRACEFUL_SHUTDOWN has one of the services, and then as
// long again as there was one, for routers to follow the withdrawal. CancelDrain ends it
// with an error for a single service; of several, the others' drains go on.
func (a *Announcer) leave(ctx context.Context, request uint64, drains map[string]*drain) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for service, m := range drains {
		if len(drains) > 1 {
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
	concerned := func(service string) bool { return drains[service] != nil }
	goes := func(d Decision) bool { return d.Route.GracefulShutdown && slices.ContainsFunc(d.Services, concerned) }
	gone := func(p Plan) bool { return !slices.ContainsFunc(p.Decisions, goes) }
	first, err := a.await(ctx, request, always)
	if err != nil || gone(first) {
		return err
	}
	began := time.Now()
	if _, err := a.await(ctx, request, gone); err != nil {
		return err
	}
	select {
	case <-time.After(time.Since(began)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// CancelDrain ends the drains of a service.
func (a *Announcer) CancelDrain(service string) {
	a.request(func(o *requests) {
		if m := o.drains[service]; m != nil {
			close(m.ended)
			delete(o.drains, service)
		}
	})
}
