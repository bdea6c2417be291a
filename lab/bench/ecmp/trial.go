// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/lab/netlab"
)

// limit is how long the table may take to become right after a change,
// startLimit if an agent has to be started.
const (
	limit      = time.Second
	startLimit = 5 * time.Second
)

// trial is the history of the route to one prefix from the cause of a change until
// shortly before the next one.
type trial struct {
	// cause is right before the change, end when the observation ends.
	cause, end time.Time
	// before and after are the right tables, first is the actual one at the cause.
	before, after, first netlab.Hops
	// events of the prefix in that time.
	events []netlab.RouteEvent
	// limit is the longest delay that isn't wrong.
	limit time.Duration
	// subject is a balancer that may be absent meanwhile; zero: none may.
	subject netip.Addr
}

// outcome is how the table followed a change.
type outcome struct {
	// delay is from the cause until the table was right for good.
	delay time.Duration
	// wrong describes an error of the table; empty: there was none.
	wrong string
	// gaps are how long each time lasted in which the table lacked a balancer that
	// served before and after, absences those in which it lacked the subject.
	gaps, absences []time.Duration
}

// judge follows the table through the trial. A table is wrong if in the end, or
// later than the limit after the cause, it isn't exactly the serving balancers with
// equal weights; or if at any moment it has one that served neither before nor
// after. A gap is wrong if it is longer than the limit.
func (t *trial) judge() outcome {
	var o outcome
	var table netlab.Hops
	var right, gap, absence time.Time
	for _, e := range append([]netlab.RouteEvent{{At: t.cause, Hops: t.first}}, t.events...) {
		if slices.Equal(e.Hops, t.after) && !slices.Equal(table, t.after) {
			right = e.At
		}
		gap = trackGap(&o.gaps, gap, e.At, t.lacks(e.Hops))
		absence = trackGap(&o.absences, absence, e.At, t.subject.IsValid() && !e.Hops.Contain(t.subject))
		if foreign := t.foreign(e.Hops); foreign != "" {
			o.wrong = foreign
		}
		table = e.Hops
	}
	trackGap(&o.gaps, gap, t.end, false)
	trackGap(&o.absences, absence, t.end, false)
	o.delay = right.Sub(t.cause)
	switch longest := slices.Max(append(o.gaps, 0)); {
	case longest > limit:
		o.wrong = "lacks a balancer for " + longest.String()
	case !slices.Equal(table, t.after):
		o.delay, o.wrong = t.end.Sub(t.cause), "in the end "+table.String()+" instead of "+t.after.String()
	case o.delay > t.limit:
		o.wrong = "right only after " + o.delay.String()
	}
	return o
}

// trackGap appends a gap that ends; since is when the present one began, zero if there
// is none.
func trackGap(gaps *[]time.Duration, since, now time.Time, lacking bool) time.Time {
	switch {
	case lacking && since.IsZero():
		return now
	case lacking || since.IsZero():
		return since
	}
	*gaps = append(*gaps, now.Sub(since))
	return time.Time{}
}

// lacks reports whether a balancer is missing that serves before and after, and is
// not the subject.
func (t *trial) lacks(table netlab.Hops) bool {
	return slices.ContainsFunc(t.before, func(h netlab.NextHop) bool {
		return h.Gateway != t.subject && t.after.Contain(h.Gateway) && !table.Contain(h.Gateway)
	})
}

// foreign names a next hop that serves neither before nor after.
func (t *trial) foreign(table netlab.Hops) string {
	for _, h := range table {
		if !t.before.Contain(h.Gateway) && !t.after.Contain(h.Gateway) {
			return "has " + h.String()
		}
	}
	return ""
}

// window is the observation of the tables of all families after one cause.
type window map[family]*trial

// noSubject isn't a balancer's number.
const noSubject = -1

// openWindow begins a window, right before the fleet changes, and discards earlier events.
// The subject is the number of a balancer that may be absent.
func (t *testbed) openWindow(after fleet, limit time.Duration, subject int) (window, error) {
	_, err := t.routes.Take()
	w, cause, before := window{}, time.Now(), t.tables(t.fleet)
	for f, prefix := range t.vips {
		w[f] = &trial{cause: cause, before: before[prefix], after: t.tables(after)[prefix], first: t.routes.Hops(prefix), limit: limit}
		if subject != noSubject {
			w[f].subject = t.gateway(f, subject)
		}
	}
	return w, err
}

// follow waits until the tables are right, or are later than the limit allows.
func (t *testbed) follow(ctx context.Context, w window) error {
	enough, cancel := context.WithDeadline(ctx, w[ipv4].cause.Add(w[ipv4].limit+limit))
	defer cancel()
	want := map[netip.Prefix]netlab.Hops{}
	for f, one := range w {
		want[t.vips[f]] = one.after
	}
	// The trials report tables that stay wrong.
	if err := t.routes.Await(enough, want); err != nil && enough.Err() == nil {
		return err
	}
	return ctx.Err()
}

// followForGood waits until the tables have stayed right for a while, or are later
// than the limit allows.
func (t *testbed) followForGood(ctx context.Context, w window, while time.Duration) error {
	for {
		if err := t.follow(ctx, w); err != nil {
			return err
		}
		if err := netlab.Sleep(ctx, while); err != nil {
			return err
		}
		right := true
		for f, one := range w {
			right = right && slices.Equal(t.routes.Hops(t.vips[f]), one.after)
		}
		if right || time.Since(w[ipv4].cause) > w[ipv4].limit {
			return nil
		}
	}
}

// closeWindow ends the window, whose trials have the histories of the tables then.
func (t *testbed) closeWindow(w window) error {
	events, err := t.routes.Take()
	end := time.Now()
	for f, one := range w {
		one.end = end
		for _, e := range events {
			if e.Prefix == t.vips[f] {
				one.events = append(one.events, e)
			}
		}
	}
	return err
}
