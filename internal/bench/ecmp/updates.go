// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/netlab"
)

// pause is how long the table is watched after it has become right, if the next
// change may come so soon: half as long again at most, half of it at least.
const pause = 100 * time.Millisecond

// updates are how the table followed the changes of the number of balancers.
type updates struct {
	// delays of changes that operators made, by family in milliseconds.
	delays map[family]bench.Runs
	// starts and stops are delays of agents that were started and stopped.
	starts, stops map[family]bench.Runs
	// gaps are in milliseconds, wrong are tables that were.
	gaps    map[family]bench.Runs
	wrong   map[family]int
	changes int
}

func newUpdates() *updates {
	return &updates{
		delays: map[family]bench.Runs{}, starts: map[family]bench.Runs{}, stops: map[family]bench.Runs{},
		gaps: map[family]bench.Runs{}, wrong: map[family]int{},
	}
}

// runUpdates changes the number of balancers at random, and watches the table.
func (s *site) runUpdates(ctx context.Context, cfg *Config, how Setting, report *bench.Report) error {
	u, random, began := newUpdates(), cfg.random(1), time.Now()
	for !cfg.enough(u.changes, time.Since(began)) {
		c := s.fleet.randomChange(random, u.changes+1)
		tables, err := s.try(ctx, c, time.Now().Add(cfg.Interval), random)
		if err != nil {
			return fmt.Errorf("change %d: %w", u.changes+1, err)
		}
		u.changes++
		u.note(cfg, how, c, tables)
		if u.changes%100 == 0 {
			cfg.progress("%s: %d changes, median %.1f ms", how, u.changes, u.delays[ipv4].Median())
		}
	}
	u.report(report, how)
	return s.restore(ctx)
}

// try makes a change and watches the tables until they have been right for a
// while, or have had time enough, and then until the next change is due.
func (s *site) try(ctx context.Context, c change, next time.Time, random *rand.Rand) (map[family]trial, error) {
	before, after := s.tables(s.fleet), s.tables(s.fleet.apply(c))
	w := window{before: before, after: after, limit: limit, subject: noSubject}
	if c.action == start {
		w.limit = startLimit
	}
	if err := s.open(&w); err != nil {
		return nil, err
	}
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return s.make(working, c) })
	group.Go(func() error { return s.follow(working, &w) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	still := pause/2 + time.Duration(random.Int64N(int64(pause)))
	if err := bench.Sleep(ctx, max(still, time.Until(next))); err != nil {
		return nil, err
	}
	return s.close(&w)
}

// note judges how the tables followed a change.
func (u *updates) note(cfg *Config, how Setting, c change, tables map[family]trial) {
	for _, f := range families() {
		trial := tables[f]
		o := trial.judge()
		u.add(c.action, f, o)
		for _, gap := range o.gaps {
			cfg.progress("%s: change %d, %s of %d balancers: table of %s lacked one of the others for %.1f ms",
				how, u.changes, c.action, len(c.balancers), f, milliseconds(gap))
		}
		if o.wrong != "" {
			cfg.progress("%s: change %d, %s of %d balancers: table of %s is wrong: %s",
				how, u.changes, c.action, len(c.balancers), f, o.wrong)
		}
	}
}

// add counts how a table followed. One that was right already, because the router
// had lost a balancer before it was told, followed nothing.
func (u *updates) add(a action, f family, o outcome) {
	delays := u.delays
	switch a {
	case start:
		delays = u.starts
	case stop:
		delays = u.stops
	default:
	}
	if o.delay > 0 {
		delays[f] = append(delays[f], milliseconds(o.delay))
	}
	for _, gap := range o.gaps {
		u.gaps[f] = append(u.gaps[f], milliseconds(gap))
	}
	if o.wrong != "" {
		u.wrong[f]++
	}
}

// report adds what was found in a setting, and judges it.
func (u *updates) report(r *bench.Report, how Setting) {
	for _, f := range families() {
		labels := how.labels("family", string(f))
		r.AddDistribution("update_delay_ms", "ms", u.delays[f], labels)
		r.Add("agent_start_ms", "ms", u.starts[f], labels)
		r.Add("agent_stop_ms", "ms", u.stops[f], labels)
		r.Add("wrong_tables", "tables", bench.Runs{float64(u.wrong[f])}, labels)
		r.Add("table_gaps", "gaps", bench.Runs{float64(len(u.gaps[f]))}, labels)
		r.Add("table_gap_ms", "ms", u.gaps[f], labels)
	}
	u.judge(r, how)
}

// judge adds the verdicts, each of both families.
func (u *updates) judge(r *bench.Report, how Setting) {
	both := func(of map[family]bench.Runs) bench.Runs { return slices.Concat(of[ipv4], of[ipv6]) }
	scaled := both(u.delays)
	if target := medianTarget(how.Router); target > 0 {
		r.Judge(fmt.Sprintf("%s: median milliseconds from a drain or undrain to the right table, %d changes in all", how, u.changes),
			"DESIGN.md §10", bench.AtMost(target), scaled.Median())
	}
	for _, kind := range []struct {
		text   string
		delays bench.Runs
	}{
		{"a drain or undrain", scaled}, {"stopping an agent", both(u.stops)}, {"starting an agent's process", both(u.starts)},
	} {
		if _, longest := kind.delays.Bounds(); len(kind.delays) > 0 {
			r.Judge(fmt.Sprintf("%s: most milliseconds from %s to the right table", how, kind.text),
				"DESIGN.md §10; dissertation §6.4: 10 s", bench.AtMost(milliseconds(limit)), longest)
		}
	}
	r.Judge(fmt.Sprintf("%s: wrong tables after %d changes", how, u.changes),
		"dissertation §6.5", bench.AtMost(0), float64(u.wrong[ipv4]+u.wrong[ipv6]))
}

// medianTarget is how soon tables are to follow, in milliseconds; 0: nothing is
// claimed. FRR itself holds routes back for 50.
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
