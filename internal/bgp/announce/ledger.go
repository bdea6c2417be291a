// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// Decision is what was decided about a prefix.
type Decision struct {
	Prefix netip.Prefix
	// Services are the names of those whose packets the prefix brings.
	Services []string
	// Announced says that the prefix is announced, Since when that became so, or
	// ceased to be.
	Announced bool
	Since     time.Time
	// Reason is why it is not announced, or soon will not be: empty otherwise.
	Reason string
	// Damped is until when it is held back because it was lost too often; zero if it
	// isn't.
	Damped time.Time
	// Route is how it is announced, or would be.
	Route bgp.Route
	// Withdrawals counts how often it was withdrawn.
	Withdrawals uint64
}

// Plan is what is decided at one moment.
type Plan struct {
	// Decisions are sorted by prefix.
	Decisions []Decision
	// Complete says that no service lacks anything: what is not announced is not
	// meant to be.
	Complete bool
	// Next is when the plan changes by itself; zero: never.
	Next time.Time
}

// Routes are those that are announced.
func (p *Plan) Routes() []bgp.Route {
	routes := make([]bgp.Route, 0, len(p.Decisions))
	for i := range p.Decisions {
		if p.Decisions[i].Announced {
			routes = append(routes, p.Decisions[i].Route)
		}
	}
	return routes
}

// ledger decides, and remembers of each prefix what later decisions need.
type ledger struct {
	policies []bgp.Policy
	// delay is bgp.Config.ShutdownDelay.
	delay    time.Duration
	prefixes map[netip.Prefix]*record
}

// record is what is remembered of a prefix.
type record struct {
	announced bool
	since     time.Time
	// leaving is since when peers have been told that the prefix will go; zero while
	// they haven't.
	leaving     time.Time
	withdrawals uint64
	damper      damper
	// serving and withheld are how it was the last time: whether a service stood for
	// it, and how many an operator kept back.
	serving  bool
	withheld int
}

// decide makes the plan that follows from the world. It is the only place where
// what is announced is decided.
func (l *ledger) decide(now time.Time, w *World) Plan {
	groups := l.group(w)
	maps.DeleteFunc(l.prefixes, func(p netip.Prefix, _ *record) bool { return groups[p] == nil })
	plan := Plan{Decisions: make([]Decision, 0, len(groups)), Complete: true}
	for _, prefix := range slices.SortedFunc(maps.Keys(groups), netip.Prefix.Compare) {
		r := l.prefixes[prefix]
		if r == nil {
			r = &record{since: now}
			l.prefixes[prefix] = r
		}
		d, next := r.follow(now, groups[prefix], l.delay)
		d.Prefix = prefix
		d.Route = groups[prefix].policy.route(prefix)
		d.Route.GracefulShutdown = d.Announced && !r.leaving.IsZero()
		plan.Decisions = append(plan.Decisions, d)
		plan.Complete = plan.Complete && groups[prefix].complete()
		plan.Next = earlier(plan.Next, next)
	}
	return plan
}

// follow decides about one prefix, and says when that changes by itself.
func (r *record) follow(now time.Time, g *group, delay time.Duration) (d Decision, next time.Time) {
	standing, withheld := g.sum()
	if withheld < r.withheld {
		r.damper = damper{} // what an operator took out and puts back has lost nothing
	}
	if r.serving && standing == absent {
		r.damper.lost(now)
	}
	r.serving, r.withheld = standing == serving, withheld

	announce := false
	switch standing {
	case serving:
		r.leaving = time.Time{}
		next = r.damper.until(now)
		announce, d.Damped = next.IsZero(), next
	case leaving:
		if r.leaving.IsZero() {
			r.leaving = now
		}
		if end := r.leaving.Add(delay); r.announced && end.After(now) {
			announce, next = true, end
		}
	case absent:
		r.leaving = time.Time{}
	}
	r.announce(now, announce)
	d.Services, d.Announced, d.Since, d.Withdrawals = g.names(), r.announced, r.since, r.withdrawals
	d.Reason = g.reason()
	return d, next
}

// announce takes note of what is decided.
func (r *record) announce(now time.Time, announced bool) {
	if announced == r.announced {
		return
	}
	r.announced, r.since = announced, now
	if !announced {
		r.withdrawals++
	}
}
