// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// Decision is the decision about a prefix.
type Decision struct {
	Prefix netip.Prefix
	// Services are the names of the prefix's services.
	Services []string
	// Announced reports whether the prefix is announced, Since when that last changed.
	Announced bool
	Since     time.Time
	// Reason is why it is not announced, or soon will not be; empty otherwise.
	Reason string
	// Damped is until when damping suppresses it; zero if it doesn't.
	Damped time.Time
	// Route is the route that is, or would be, announced.
	Route bgp.Route
	// Withdrawals counts how often it was withdrawn.
	Withdrawals uint64
}

// Plan has the decisions about all prefixes.
type Plan struct {
	// Decisions are sorted by prefix.
	Decisions []Decision
	// Complete is set if no service may become servable yet: prefixes without a route
	// stay without one.
	Complete bool
	// Next is when the plan changes by time alone; zero for never.
	Next time.Time

	requests uint64 // how many it includes
}

// Routes returns the announced routes.
func (p *Plan) Routes() []bgp.Route {
	routes := make([]bgp.Route, 0, len(p.Decisions))
	for i := range p.Decisions {
		if p.Decisions[i].Announced {
			routes = append(routes, p.Decisions[i].Route)
		}
	}
	return routes
}

// planner makes plans. It keeps the state of each prefix that later decisions need.
type planner struct {
	policies []bgp.Policy
	// delay is bgp.Config.ShutdownDelay.
	delay    time.Duration
	prefixes map[netip.Prefix]*record
}

// record is the history of a prefix.
type record struct {
	Decision // the last one
	// leaving is since when the route has GRACEFUL_SHUTDOWN; zero if it hasn't.
	leaving time.Time
	// settling is since when a new route waits for unsettled services; zero if none does.
	settling time.Time
	damper   damper
	// serving and suppressed are from the last decision: whether a service was
	// serving, and how many were suppressed.
	serving    bool
	suppressed int
}

// decide makes a plan of an input.
func (p *planner) decide(now time.Time, in *Input) Plan {
	groups := p.group(in)
	maps.DeleteFunc(p.prefixes, func(p netip.Prefix, _ *record) bool { return groups[p] == nil })
	plan := Plan{Decisions: make([]Decision, 0, len(groups)), Complete: true}
	for _, prefix := range slices.SortedFunc(maps.Keys(groups), netip.Prefix.Compare) {
		r := p.prefixes[prefix]
		if r == nil {
			r = &record{Decision: Decision{Prefix: prefix, Since: now}}
			p.prefixes[prefix] = r
		}
		next := r.follow(now, groups[prefix], p.delay)
		r.Route = groups[prefix].route(prefix)
		r.Route.GracefulShutdown = r.Announced && !r.leaving.IsZero()
		plan.Decisions = append(plan.Decisions, r.Decision)
		plan.Complete = plan.Complete && groups[prefix].complete() && r.settling.IsZero()
		plan.Next = earlier(plan.Next, next)
	}
	return plan
}

// follow decides about one prefix, and returns when the decision changes by time alone.
func (r *record) follow(now time.Time, g *group, delay time.Duration) (next time.Time) {
	routeState, suppressed := g.sum()
	if suppressed < r.suppressed {
		r.damper = damper{} // an operator's drain doesn't count as a loss
	}
	if r.serving && routeState == notServing {
		r.damper.lost(now)
	}
	r.serving, r.suppressed = routeState == serving, suppressed

	announce, settling := false, r.settling
	r.Damped, r.settling = time.Time{}, time.Time{}
	r.Services, r.Reason = g.names(), g.reason()
	switch routeState {
	case serving:
		r.leaving = time.Time{}
		next = r.damper.until(now)
		announce, r.Damped = next.IsZero(), next
		if announce && !r.Announced && g.unsettled() {
			if r.settling = settling; settling.IsZero() {
				r.settling = now
			}
			if end := r.settling.Add(settleDelay); end.After(now) {
				announce, next, r.Reason = false, end, "not all backends have been checked yet"
			}
		}
	case leaving:
		if r.leaving.IsZero() {
			r.leaving = now
		}
		if end := r.leaving.Add(delay); r.Announced && end.After(now) {
			announce, next = true, end
		}
	case notServing:
		r.leaving = time.Time{}
	}
	if announce != r.Announced {
		r.Announced, r.Since = announce, now
		if !announce {
			r.Withdrawals++
		}
	}
	return next
}

// settleDelay is how long a new route waits at most for the first checks of all backends, of which
// some may be dead.
const settleDelay = time.Second

// Damping as in RFC 2439 with other figures: a penalty of 1000 there is 1 here, and
// seconds suffice instead of minutes, as no other router damps the prefix. A prefix
// that is lost less than once in a half-life is never suppressed, as 1 + 1/2 + 1/4 + …
// stays below suppressAbove.
const (
	halfLife      = 10 * time.Second
	suppressAbove = 2
	reuseAt       = 1
	// mostPenalty bounds the suppression after the last loss to three half-lives.
	mostPenalty = 8
)

// damper counts recent losses of a prefix. The zero value has none.
type damper struct {
	penalty float64 // at the time at
	at      time.Time
	active  bool
}

// lost counts a loss.
func (d *damper) lost(now time.Time) {
	decayed := d.penalty * math.Exp2(-float64(now.Sub(d.at))/float64(halfLife))
	d.penalty, d.at = min(decayed+1, mostPenalty), now
	d.active = d.penalty > suppressAbove
}

// until is when a suppressed prefix may be announced again; zero if it is not
// suppressed.
func (d *damper) until(now time.Time) time.Time {
	if !d.active {
		return time.Time{}
	}
	free := d.at.Add(time.Duration(math.Log2(d.penalty/reuseAt) * float64(halfLife)))
	if !free.After(now) {
		d.active = false
		return time.Time{}
	}
	return free
}
