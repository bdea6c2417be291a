// SPDX-License-Identifier: Apache-2.0

// Package announce decides which routes this node announces: routes of the VIPs
// that it serves. The agent runs an Announcer, which sets the routes of a speaker.
//
// It watches the store: the desired services, their health and drains, and their
// status in the data plane. No route is announced before its VIP is programmed, or, for a
// moment, before all its backends have been checked: they have flows of other nodes. The
// route of a VIP that can't be served is withdrawn at once; the route of a VIP which is
// drained first gets the community GRACEFUL_SHUTDOWN (RFC 8326).
package announce

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/internal/wait"
)

// Speaker announces routes. It has no session before the first Configure.
type Speaker interface {
	// Set makes routes, sorted by prefix, all that is announced.
	Set(routes []bgp.Route) error
	// Configure makes peers all that there are.
	Configure(ctx context.Context, peers []bgp.Peer) error
}

// Recorder records changes of routes.
type Recorder interface {
	RouteAnnounced(prefix netip.Prefix, reason string)
	RouteLeaving(prefix netip.Prefix, reason string)
	RouteWithdrawn(prefix netip.Prefix, reason string)
}

// Config configures an Announcer.
type Config struct {
	// BGP is the first configuration.
	BGP     *bgp.Config
	Store   *store.Store
	Speaker Speaker
	Events  Recorder
	Log     *slog.Logger
}

// Announcer keeps a speaker's routes up to date in Run. The other methods may be called
// concurrently.
type Announcer struct {
	Config

	// Only Run uses these.
	planner planner
	// set are the speaker's routes, peers the configuration whose peers it has; nil
	// before the first ones. failed is the last error that was logged.
	set    []bgp.Route
	peers  *bgp.Config
	failed string

	requests wait.Value[requests]
	latest   wait.Value[Plan]
}

// New returns an Announcer for Run.
func New(c Config) *Announcer {
	a := &Announcer{Config: c, planner: planner{prefixes: map[netip.Prefix]*record{}}}
	a.requests.Set(requests{config: c.BGP})
	return a
}

// startDelay is how long the first sessions wait for a complete plan. A router that
// keeps routes over a restart removes those that are not among the first ones (RFC
// 4724 §4.2), and the next hops of some services may not be resolved yet.
const startDelay = time.Second

// start is when the speaker may get a plan; zero for at once.
func (a *Announcer) start(o *requests, plan *Plan) time.Time {
	if a.set != nil || plan.Complete || !o.working() {
		return time.Time{}
	}
	return o.began.Add(startDelay)
}

// retryPause is the pause after an error of the speaker.
const retryPause = time.Second

// Run announces until ctx ends. It is called once. Afterwards the speaker withdraws the
// routes, or leaves them to the next agent.
func (a *Announcer) Run(ctx context.Context) {
	for {
		desired, changed := a.Store.Watch()
		o, ordered := a.requests.Watch()
		a.planner.policies, a.planner.delay = o.config.Policies, o.config.ShutdownDelay
		plan := a.planner.decide(time.Now(), &Input{
			Desired: desired, Working: o.working(), Missing: o.missing, Stopping: o.stopping, Draining: o.drains,
		})
		next := plan.Next
		if a.set == nil {
			a.configurePeers(ctx, o.config)
		}
		set := true
		if start := a.start(&o, &plan); start.After(time.Now()) {
			next = start
		} else if o.working() {
			set = a.setRoutes(plan.Routes())
			if set && a.configurePeers(ctx, o.config) {
				a.failed = ""
			} else {
				next = earlier(next, time.Now().Add(retryPause))
			}
		}
		if set { // otherwise the speaker has the routes of the plan before
			plan.requests = o.given
			before := a.Decisions()
			a.latest.Set(plan)
			recordChanges(a.Events, before, plan.Decisions)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-ordered:
		case <-after(next):
		}
	}
}

// earlier returns the earlier of two times; the zero Time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// after fires at a time; the zero Time is never.
func after(t time.Time) <-chan time.Time {
	if t.IsZero() {
		return nil
	}
	return time.After(time.Until(t))
}

// configurePeers sets the speaker's peers. It is done before there are routes: sessions
// wait for the first routes, but BFD doesn't. A router's BFD session with the former
// agent is resumed or has expired when this agent's BGP session begins, and doesn't
// end it. It reports whether the speaker has accepted them.
func (a *Announcer) configurePeers(ctx context.Context, config *bgp.Config) bool {
	if a.peers != config {
		if !a.accepted("peers", a.Speaker.Configure(ctx, config.Peers)) {
			return false
		}
		a.peers = config
	}
	return true
}

// setRoutes sets the speaker's routes, before its peers, so that the session with a new
// peer begins with all routes. It reports whether the speaker has accepted them.
func (a *Announcer) setRoutes(routes []bgp.Route) bool {
	same := func(x, y bgp.Route) bool { return x.Equal(&y) }
	if a.set == nil || !slices.EqualFunc(a.set, routes, same) {
		if !a.accepted("routes", a.Speaker.Set(routes)) {
			return false
		}
		a.set = routes
	}
	return true
}

// accepted logs a new error, and reports whether there is none.
func (a *Announcer) accepted(what string, err error) bool {
	if err == nil {
		return true
	}
	if reason := err.Error(); reason != a.failed {
		a.failed = reason
		a.Log.Error("bgp speaker failed", "operation", what, "error", err)
	}
	return false
}

// Decisions returns the latest decisions, sorted by prefix. The caller must not change
// them.
func (a *Announcer) Decisions() []Decision {
	return a.latest.Get().Decisions
}

// recordChanges records the differences between two lists of decisions, sorted by prefix.
func recordChanges(events Recorder, before, after []Decision) {
	for i := range after {
		d, was := &after[i], &Decision{}
		for len(before) > 0 && before[0].Prefix.Compare(d.Prefix) < 0 {
			recordRemoved(events, &before[0])
			before = before[1:]
		}
		if len(before) > 0 && before[0].Prefix == d.Prefix {
			was, before = &before[0], before[1:]
		}
		switch {
		case was.Announced && !d.Announced:
			events.RouteWithdrawn(d.Prefix, d.Reason)
		case d.Route.GracefulShutdown && !was.Route.GracefulShutdown:
			events.RouteLeaving(d.Prefix, d.Reason)
		case d.Announced && (!was.Announced || was.Route.GracefulShutdown && !d.Route.GracefulShutdown):
			events.RouteAnnounced(d.Prefix, "served for "+firstOf(d.Services))
		}
	}
	for i := range before {
		recordRemoved(events, &before[i])
	}
}

// recordRemoved records the end of a prefix whose last service is removed.
func recordRemoved(events Recorder, d *Decision) {
	if d.Announced {
		events.RouteWithdrawn(d.Prefix, "no service left")
	}
}

// firstOf lists the first few services.
func firstOf(names []string) string {
	const most = 3
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
