// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// pause is the mean time for which the table is observed after it has become right,
// if the next change is due by then: 50 to 150 %.
const pause = 100 * time.Millisecond

// updates records how the tables followed changes of the number of balancers.
type updates struct {
	changes  int
	families map[family]*familyUpdates
}

// familyUpdates are times in milliseconds, and the number of wrong tables.
type familyUpdates struct {
	// delays of drains and undrains, starts and stops of agents.
	delays, starts, stops, gaps bench.Runs
	wrong                       int
}

func newUpdates() *updates {
	return &updates{families: map[family]*familyUpdates{ipv4: {}, ipv6: {}}}
}

// measureUpdates changes the number of balancers at random and observes the tables.
func (t *testbed) measureUpdates(ctx context.Context) error {
	u, random, began := newUpdates(), t.config.random(1), time.Now()
	for !t.config.enough(u.changes, time.Since(began)) {
		c := t.fleet.randomChange(random, u.changes+1)
		trials, err := t.try(ctx, c, time.Now().Add(t.config.Interval), random)
		if err != nil {
			return fmt.Errorf("change %d: %w", u.changes+1, err)
		}
		u.changes++
		for _, f := range families() {
			o := trials[f].judge()
			u.families[f].add(c.action, o)
			t.logOutcome(u.changes, c, f, o)
		}
		if u.changes%100 == 0 {
			t.config.Log("%s: %d changes, median %.1f ms", t.setting, u.changes, u.families[ipv4].delays.Median())
		}
	}
	u.report(t.report, t.setting)
	return t.restore(ctx)
}

// try makes a change and observes the tables until they have been right for a
// while, or are too late, and the next change is due.
func (t *testbed) try(ctx context.Context, c change, next time.Time, random *rand.Rand) (window, error) {
	allowed := limit
	if c.action == start {
		allowed = startLimit
	}
	w, err := t.openWindow(t.fleet.after(c), allowed, noSubject)
	if err != nil {
		return nil, err
	}
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return t.apply(working, c) })
	group.Go(func() error { return t.follow(working, w) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	still := pause/2 + time.Duration(random.Int64N(int64(pause)))
	if err := netlab.Sleep(ctx, max(still, time.Until(next))); err != nil {
		return nil, err
	}
	return w, t.closeWindow(w)
}

func (t *testbed) logOutcome(number int, c change, f family, o outcome) {
	what := fmt.Sprintf("%s: change %d, %s of %d balancers: table of %s", t.setting, number, c.action, len(c.balancers), f)
	for _, gap := range o.gaps {
		t.config.Log("%s lacked one of the others for %.1f ms", what, bench.Milliseconds(gap))
	}
	if o.wrong != "" {
		t.config.Log("%s is wrong: %s", what, o.wrong)
	}
}

// add records an outcome. A table that was right at the cause, because the router
// had lost the balancer already, has no delay.
func (u *familyUpdates) add(a action, o outcome) {
	delays := &u.delays
	switch a {
	case start:
		delays = &u.starts
	case stop:
		delays = &u.stops
	default:
	}
	if o.delay > 0 {
		*delays = append(*delays, bench.Milliseconds(o.delay))
	}
	for _, gap := range o.gaps {
		u.gaps = append(u.gaps, bench.Milliseconds(gap))
	}
	if o.wrong != "" {
		u.wrong++
	}
}

// report adds the results and verdicts of a setting.
func (u *updates) report(r *bench.Report, setting Setting) {
	for _, f := range families() {
		found, labels := u.families[f], setting.labels(f)
		r.AddDistribution("update_delay_ms", "ms", found.delays, labels)
		r.Add("agent_start_ms", "ms", found.starts, labels)
		r.Add("agent_stop_ms", "ms", found.stops, labels)
		r.Add("wrong_tables", "tables", bench.Runs{float64(found.wrong)}, labels)
		r.Add("table_gaps", "gaps", bench.Runs{float64(len(found.gaps))}, labels)
		r.Add("table_gap_ms", "ms", found.gaps, labels)
	}
	v4, v6 := u.families[ipv4], u.families[ipv6]
	delays := slices.Concat(v4.delays, v6.delays)
	if target := medianTarget(setting.Router); target > 0 {
		r.Judge(fmt.Sprintf("%s: median milliseconds from a drain or undrain to the right table, %d changes in all", setting, u.changes),
			bench.Documented, bench.AtMost(target), delays.Median())
	}
	for _, kind := range []struct {
		text   string
		delays bench.Runs
	}{
		{"a drain or undrain", delays},
		{"stopping an agent", slices.Concat(v4.stops, v6.stops)},
		{"starting an agent's process", slices.Concat(v4.starts, v6.starts)},
	} {
		if _, longest := kind.delays.Bounds(); len(kind.delays) > 0 {
			r.Judge(fmt.Sprintf("%s: most milliseconds from %s to the right table", setting, kind.text),
				bench.Documented+"; dissertation §6.4: 10 s", bench.AtMost(bench.Milliseconds(limit)), longest)
		}
	}
	r.Judge(fmt.Sprintf("%s: wrong tables after %d changes", setting, u.changes),
		"dissertation §6.5", bench.AtMost(0), float64(v4.wrong+v6.wrong))
}

// medianTarget is the longest median delay in milliseconds; 0: no claim is made. FRR
// itself holds routes back for 50.
func medianTarget(router netlab.RouterKind) float64 {
	switch router {
	case netlab.FRR:
		return 80
	case netlab.BIRD:
		return 20
	default:
		return 0
	}
}
