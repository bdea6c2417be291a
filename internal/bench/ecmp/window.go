// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/bench/ecmp/fib"
)

// window is the time in which the tables follow one cause.
type window struct {
	// cause is when the window was opened, right before anything was done.
	cause time.Time
	// before and after are the right tables, first are those that there were when
	// the window was opened.
	before, after, first map[netip.Prefix]fib.Hops
	// limit is how long the tables may be others.
	limit time.Duration
	// subject is the number of a balancer that may come and go; noSubject: none.
	subject int
}

// noSubject is no balancer's number.
const noSubject = -1

// open begins a window; what happened before is forgotten.
func (s *site) open(w *window) error {
	_, err := s.routes.Take()
	w.cause, w.first = time.Now(), map[netip.Prefix]fib.Hops{}
	for prefix := range w.after {
		w.first[prefix] = s.routes.Hops(prefix)
	}
	return err
}

// follow waits until the tables are right, or have had more than time enough.
func (s *site) follow(ctx context.Context, w *window) error {
	enough, cancel := context.WithTimeout(ctx, w.limit+limit)
	defer cancel()
	// That they don't become right is what the trials will say.
	if err := s.routes.Await(enough, w.after); err != nil && enough.Err() == nil {
		return err
	}
	return ctx.Err()
}

// followForGood waits until the tables have been right for a while, or have had
// more than time enough.
func (s *site) followForGood(ctx context.Context, w *window, while time.Duration) error {
	for {
		if err := s.follow(ctx, w); err != nil {
			return err
		}
		if err := bench.Sleep(ctx, while); err != nil {
			return err
		}
		if s.right(w.after) || time.Since(w.cause) > w.limit {
			return nil
		}
	}
}

// right reports whether the tables are these at the moment.
func (s *site) right(tables map[netip.Prefix]fib.Hops) bool {
	for prefix, hops := range tables {
		if !s.routes.Hops(prefix).Equal(hops) {
			return false
		}
	}
	return true
}

// close ends the window and returns what the tables were in it.
func (s *site) close(w *window) (map[family]trial, error) {
	events, err := s.routes.Take()
	if err != nil {
		return nil, err
	}
	trials, end := map[family]trial{}, time.Now()
	for family, prefix := range s.vips {
		t := trial{
			cause: w.cause, end: end, before: w.before[prefix], after: w.after[prefix], first: w.first[prefix], limit: w.limit,
		}
		if w.subject != noSubject {
			t.subject = s.gateway(family, w.subject)
		}
		for _, e := range events {
			if e.Prefix == prefix {
				t.events = append(t.events, e)
			}
		}
		trials[family] = t
	}
	return trials, nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }
