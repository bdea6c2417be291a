// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bench/ecmp/fib"
)

// limit is how long the table may take to become right after a change (DESIGN.md
// §10), startLimit if an agent has to be started.
const (
	limit      = time.Second
	startLimit = 5 * time.Second
)

// trial is what the route to one prefix was from the cause of a change until
// shortly before the next one.
type trial struct {
	// cause is before the first balancer was told, end when the watch was over.
	cause, end time.Time
	// before and after are the right tables, first is the one that there was at the
	// cause.
	before, after, first fib.Hops
	// events are those of the prefix in that time.
	events []fib.Event
	// limit is how long the table may be another one than that after.
	limit time.Duration
	// subject is a balancer that may come and go meanwhile; zero: none may.
	subject netip.Addr
}

// outcome is how the table followed a change.
type outcome struct {
	// delay is from the cause until the table was right for good.
	delay time.Duration
	// wrong says what must not be, in words; empty if nothing was.
	wrong string
	// gaps are how long each time lasted in which the table lacked a balancer that
	// served before and after, absences those in which it lacked the subject.
	gaps, absences []time.Duration
}

// judge follows the table through the trial. A table is wrong if in the end, or
// later than the limit after the cause, it isn't exactly the balancers that
// serve, with equal weights; or if at any moment it has one that served neither
// before nor after. A gap is wrong if it is longer than the limit.
func (t *trial) judge() outcome {
	var o outcome
	var hops fib.Hops
	var right, gap, absence time.Time
	for _, e := range append([]fib.Event{{At: t.cause, Hops: t.first}}, t.events...) {
		if e.Hops.Equal(t.after) && !hops.Equal(t.after) {
			right = e.At
		}
		gap = mind(&o.gaps, gap, e.At, t.lacks(e.Hops))
		absence = mind(&o.absences, absence, e.At, t.subject.IsValid() && !e.Hops.Leads(t.subject))
		if foreign := t.foreign(e.Hops); foreign != "" {
			o.wrong = foreign
		}
		hops = e.Hops
	}
	mind(&o.gaps, gap, t.end, false)
	mind(&o.absences, absence, t.end, false)
	o.delay = right.Sub(t.cause)
	switch longest := slices.Max(append(o.gaps, 0)); {
	case longest > limit:
		o.wrong = "lacks a balancer for " + longest.String()
	case !hops.Equal(t.after):
		o.delay, o.wrong = t.end.Sub(t.cause), "in the end "+hops.String()+" instead of "+t.after.String()
	case o.delay > t.limit:
		o.wrong = "right only after " + o.delay.String()
	}
	return o
}

// mind follows gaps: since is when the present one began, zero if there is none.
func mind(gaps *[]time.Duration, since, now time.Time, lacking bool) time.Time {
	switch {
	case lacking && since.IsZero():
		return now
	case lacking || since.IsZero():
		return since
	}
	*gaps = append(*gaps, now.Sub(since))
	return time.Time{}
}

// lacks reports whether one is missing that serves before and after, and is not
// the subject.
func (t *trial) lacks(hops fib.Hops) bool {
	return slices.ContainsFunc(t.before, func(h fib.Hop) bool {
		return h.Gateway != t.subject && t.after.Leads(h.Gateway) && !hops.Leads(h.Gateway)
	})
}

// foreign names a next hop that serves neither before nor after.
func (t *trial) foreign(hops fib.Hops) string {
	for _, h := range hops {
		if !t.before.Leads(h.Gateway) && !t.after.Leads(h.Gateway) {
			return "has " + h.String()
		}
	}
	return ""
}
