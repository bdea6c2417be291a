// SPDX-License-Identifier: Apache-2.0

// Package announce decides which routes this node announces: those of VIPs that
// it serves.
//
// It stands between reconcile and the BGP speaker in the story of DESIGN.md §1.
// It follows what is desired, what health and operators say of it, and what the
// data plane has been programmed with, and hands the routes that follow from
// that to a speaker. No route stands before its VIP is programmed; what is lost
// is withdrawn at once; and where packets are to go elsewhere though they could
// be served, peers are asked to prefer other routes first (RFC 8326).
package announce

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/store"
)

// Speaker tells peers. It holds no session before the first Configure.
type Speaker interface {
	// Set makes routes, sorted by prefix, all that is announced.
	Set(routes []bgp.Route) error
	// Configure makes peers all that are told.
	Configure(ctx context.Context, peers []bgp.Peer) error
}

// Teller is told what happens to prefixes.
type Teller interface {
	RouteAnnounced(prefix netip.Prefix, reason string)
	RouteLeaving(prefix netip.Prefix, reason string)
	RouteWithdrawn(prefix netip.Prefix, reason string)
}

// Config is what an Announcer is made of.
type Config struct {
	// BGP is the first configuration.
	BGP     *bgp.Config
	Desired *store.Store
	// Programmed returns the services' statuses, sorted by VIP, and a channel that
	// is closed when one of them is another (reconcile.Reconciler.Watch).
	Programmed func() ([]reconcile.Status, <-chan struct{})
	Speaker    Speaker
	Tell       Teller
	Log        *slog.Logger
}

// Announcer keeps a speaker's routes at what is served. Run does the work; the
// other methods may be called from any goroutine, at any time.
type Announcer struct {
	Config

	// These are Run's alone.
	ledger ledger
	// set are the routes that the speaker has, peers the configuration whose peers it
	// has; nil before the first ones.
	set    []bgp.Route
	peers  *bgp.Config
	failed string

	mu     sync.Mutex
	orders orders
	// ordered is closed when orders change.
	ordered chan struct{}
	// plan is the latest, made when so many orders had been given; planned is closed
	// when there is another.
	plan    Plan
	heard   uint64
	planned chan struct{}
}

// New returns an Announcer that is started with Run.
func New(c Config) *Announcer {
	return &Announcer{
		Config:  c,
		ledger:  ledger{prefixes: map[netip.Prefix]*record{}},
		orders:  orders{config: c.BGP, moves: map[string]*move{}},
		ordered: make(chan struct{}), planned: make(chan struct{}),
	}
}

// completion is how long the first sessions wait for a plan that is complete. A
// router that keeps routes over a restart drops those that it isn't told of in
// the beginning (RFC 4724 §4.2), and the agent has yet to learn for some of its
// services that they are served: next hops are being looked for.
const completion = time.Second

// start is when the speaker may be told of a plan; zero: whenever there is one.
func (a *Announcer) start(o *orders, plan *Plan) time.Time {
	if a.set != nil || plan.Complete || !o.working() {
		return time.Time{}
	}
	return o.began.Add(completion)
}

// retryPause is how long a speaker that refused something is left alone.
const retryPause = time.Second

// Run announces until ctx ends. It is called once. What is announced then stays
// the speaker's to withdraw, or to leave to the next agent.
func (a *Announcer) Run(ctx context.Context) {
	for {
		desired, wished := a.Desired.Watch()
		statuses, programmed := a.Programmed()
		o, ordered := a.watchOrders()
		if !o.working() {
			programmed = nil // until then it changes nothing
		}
		a.ledger.policies, a.ledger.delay = o.config.Policies, o.config.ShutdownDelay
		plan := a.ledger.decide(time.Now(), &World{
			Desired: desired, Programmed: statuses,
			Working: o.working(), Stopping: o.stopping, Moving: o.moving(),
		})
		next := plan.Next
		if a.set == nil {
			a.introduce(ctx, o.config)
		}
		if start := a.start(&o, &plan); start.After(time.Now()) {
			next = start
		} else if o.working() && !a.speak(ctx, o.config, plan.Routes()) {
			next = earlier(next, time.Now().Add(retryPause))
		}
		a.publish(plan, o.given)
		select {
		case <-ctx.Done():
			return
		case <-wished:
		case <-programmed:
		case <-ordered:
		case <-after(next):
		}
	}
}

// earlier returns the earlier of two times; the zero one is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// after fires at a time, never at the zero one.
func after(t time.Time) <-chan time.Time {
	if t.IsZero() {
		return nil
	}
	return time.After(time.Until(t))
}

// introduce makes the peers known to the speaker. It is done before there is
// anything to say: sessions wait for the first routes, but BFD doesn't, so that a
// router has given up the former agent's BFD session when this one's BGP session
// begins, and doesn't end it for that. It reports whether the speaker has agreed.
func (a *Announcer) introduce(ctx context.Context, config *bgp.Config) bool {
	if a.peers == config {
		return true
	}
	if !a.agreed("peers", a.Speaker.Configure(ctx, config.Peers)) {
		return false
	}
	a.peers = config
	return true
}

// speak makes the speaker say what was planned: routes first, so that the session
// with a new peer begins with all of them. It reports whether the speaker has
// agreed.
func (a *Announcer) speak(ctx context.Context, config *bgp.Config, routes []bgp.Route) bool {
	same := func(x, y bgp.Route) bool { return x.Equal(&y) }
	if a.set == nil || !slices.EqualFunc(a.set, routes, same) {
		if !a.agreed("routes", a.Speaker.Set(routes)) {
			return false
		}
		a.set = routes
	}
	if !a.introduce(ctx, config) {
		return false
	}
	a.failed = ""
	return true
}

// agreed logs an error that is news.
func (a *Announcer) agreed(what string, err error) bool {
	if err == nil {
		return true
	}
	if reason := err.Error(); reason != a.failed {
		a.failed = reason
		a.Log.Error("refused by the bgp speaker", "what", what, "error", err)
	}
	return false
}

// publish shows a plan, and tells what it changes.
func (a *Announcer) publish(plan Plan, heard uint64) {
	a.mu.Lock()
	before := a.plan
	a.plan, a.heard = plan, heard
	close(a.planned)
	a.planned = make(chan struct{})
	a.mu.Unlock()
	tellChanges(a.Tell, before.Decisions, plan.Decisions)
}

// Decisions returns what was decided last, sorted by prefix. It is not to be
// changed.
func (a *Announcer) Decisions() []Decision {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.plan.Decisions
}
