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

// pause is how long the table is watched after it has become right, and half as
// long again at most; half of it at least.
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
		next := time.Now().Add(cfg.Interval)
		c := s.fleet.randomChange(random, u.changes+1)
		tables, err := s.try(ctx, c, random)
		if err != nil {
			return fmt.Errorf("change %d: %w", u.changes+1, err)
		}
		u.changes++
		for family, trial := range tables {
			if wrong := u.add(c.action, family, trial.judge()); wrong != "" {
				cfg.progress("change %d, %s of %d balancers: table of %s is wrong: %s", u.changes, c.action, len(c.balancers), family, wrong)
			}
		}
		if u.changes%100 == 0 {
			cfg.progress("%d changes, median %.1f ms", u.changes, u.delays[ipv4].Median())
		}
		if err := sleep(ctx, time.Until(next)); err != nil {
			return err
		}
	}
	u.report(report, how)
	return s.restore(ctx)
}

// try makes a change and watches the tables until they have been right for a
// while, or have had time enough.
func (s *site) try(ctx context.Context, c change, random *rand.Rand) (map[family]trial, error) {
	before, after := s.tables(s.fleet), s.tables(s.fleet.apply(c))
	w := window{before: before, after: after, limit: limit}
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
	if err := sleep(ctx, pause/2+time.Duration(random.Int64N(int64(pause)))); err != nil {
		return nil, err
	}
	return s.close(&w)
}

// add counts how a table followed, and says what was wrong, if anything.
func (u *updates) add(a action, f family, o outcome) string {
	delays := u.delays
	switch a {
	case start:
		delays = u.starts
	case stop:
		delays = u.stops
	default:
	}
	delays[f] = append(delays[f], milliseconds(o.delay))
	for _, gap := range o.gaps {
		u.gaps[f] = append(u.gaps[f], milliseconds(gap))
	}
	if o.wrong != "" {
		u.wrong[f]++
	}
	return o.wrong
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
	delays := slices.Concat(u.delays[ipv4], u.delays[ipv6])
	if target, told := medianTargets[how.Router]; told {
		r.Judge(fmt.Sprintf("%s: median milliseconds from a change to the right table, %d changes", how, u.changes),
			"DESIGN.md §10", bench.AtMost(target), delays.Median())
	}
	_, longest := slices.Concat(delays, u.stops[ipv4], u.stops[ipv6]).Bounds()
	r.Judge(fmt.Sprintf("%s: most milliseconds from a change to the right table", how),
		"DESIGN.md §10; dissertation §6.4: 10 s", bench.AtMost(milliseconds(limit)), longest)
	r.Judge(fmt.Sprintf("%s: wrong tables after %d changes", how, u.changes),
		"dissertation §6.5", bench.AtMost(0), float64(u.wrong[ipv4]+u.wrong[ipv6]))
}

// medianTargets are how soon tables are to follow, in milliseconds. FRR itself
// holds routes back for 50.
var medianTargets = map[netlab.RouterKind]float64{netlab.FRR: 80, netlab.BIRD: 20}
