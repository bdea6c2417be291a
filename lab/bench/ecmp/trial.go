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

// window is the observation of the tables of all prefixes after one cause.
type window struct {
	// cause is when the window was opened, right before the change.
	cause time.Time
	// before and after are the right tables, first the actual ones at the cause.
	before, after, first map[netip.Prefix]netlab.Hops
	// limit is the longest delay that isn't wrong.
	limit time.Duration
	// subject is the number of a balancer that may be absent; noSubject: none.
	subject int
}

// noSubject isn't a balancer's number.
const noSubject = -1

// openWindow begins a window and discards earlier events.
func (t *testbed) openWindow(w *window) error {
	_, err := t.routes.Take()
	w.cause, w.first = time.Now(), map[netip.Prefix]netlab.Hops{}
	for prefix := range w.after {
		w.first[prefix] = t.routes.Hops(prefix)
	}
	return err
}

// follow waits until the tables are right, or are later than the limit allows.
func (t *testbed) follow(ctx context.Context, w *window) error {
	enough, cancel := context.WithTimeout(ctx, w.limit+limit)
	defer cancel()
	// The trials report tables that stay wrong.
	if err := t.routes.Await(enough, w.after); err != nil && enough.Err() == nil {
		return err
	}
	return ctx.Err()
}

// followForGood waits until the tables have stayed right for a while, or are later
// than the limit allows.
func (t *testbed) followForGood(ctx context.Context, w *window, while time.Duration) error {
	right := func() bool {
		for prefix, want := range w.after {
			if !slices.Equal(t.routes.Hops(prefix), want) {
				return false
			}
		}
		return true
	}
	for {
		if err := t.follow(ctx, w); err != nil {
			return err
		}
		if err := netlab.Sleep(ctx, while); err != nil {
			return err
		}
		if right() || time.Since(w.cause) > w.limit {
			return nil
		}
	}
}

// closeWindow ends the window and returns the histories of the tables.
func (t *testbed) closeWindow(w *window) (map[family]trial, error) {
	events, err := t.routes.Take()
	if err != nil {
		return nil, err
	}
	trials, end := map[family]trial{}, time.Now()
	for family, prefix := range t.vips {
		one := trial{
			cause: w.cause, end: end, before: w.before[prefix], after: w.after[prefix], first: w.first[prefix], limit: w.limit,
		}
		if w.subject != noSubject {
			one.subject = t.gateway(family, w.subject)
		}
		for _, e := range events {
			if e.Prefix == prefix {
				one.events = append(one.events, e)
			}
		}
		trials[family] = one
	}
	return trials, nil
}
