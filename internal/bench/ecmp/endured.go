// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"slices"
	"time"
)

// endured is the window of an accident that is over.
type endured struct {
	window
	// end is when the table had been right for a while; then the accident was
	// mended, and the balancer was back for a while.
	end, mended, back time.Time
	trials            map[family]trial
	// outages are from the cause to the last packet that the router sent to the
	// balancer.
	outages map[family]time.Duration
}

// endure has an accident happen and watches until the table has been right for a
// while.
func (s *site) endure(ctx context.Context, c lossCourse, a accident, n int) (*endured, error) {
	left := slices.Clone(s.fleet)
	w := &endured{window: window{limit: accidentLimit, subject: n}, outages: map[family]time.Duration{}}
	if !a.stays {
		left[n], w.subject = stopped, noSubject
	}
	w.before, w.after = s.tables(s.fleet), s.tables(left)
	if err := s.open(&w.window); err != nil {
		return nil, err
	}
	if err := a.happen(ctx, n); err != nil {
		return nil, err
	}
	if a.stays {
		if err := s.settle(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.followForGood(ctx, &w.window, c.aftermath); err != nil {
		return nil, err
	}
	w.end = time.Now()
	var err error
	w.trials, err = s.close(&w.window)
	return w, err
}

// count adds what an accident of that balancer did to one family.
func (w *endured) count(cfg *Config, a accident, name string, f family, load *datagrams, done damage) {
	trial := w.trials[f]
	o := trial.judge()
	fell, back := load.fateOf(w.cause, w.end, f), load.fateOf(w.mended, w.back, f)
	wrong, absent := 0.0, time.Duration(0)
	if o.wrong != "" {
		wrong = 1
		cfg.progress("%s when %s: table of %s is wrong: %s", name, a.text, f, o.wrong)
	}
	for _, absence := range o.absences {
		absent += absence
	}
	if a.stays {
		done.add(f, "absent_ms", milliseconds(absent))
		cfg.progress("%s when %s: %s: not in the table for %.0f ms, %d of %d datagrams lost, %d moved",
			name, a.text, f, milliseconds(absent), fell.lost, fell.sent, fell.moved)
	} else {
		done.add(f, "outage_ms", milliseconds(w.outages[f]))
		done.add(f, "table_ms", milliseconds(o.delay))
		done.add(f, "return_lost", float64(back.lost))
		cfg.progress("%s when %s: %s: table right after %.0f ms, last packet after %.0f ms, %d of %d datagrams lost, %d moved; %d of %d lost when it is back",
			name, a.text, f, milliseconds(o.delay), milliseconds(w.outages[f]), fell.lost, fell.sent, fell.moved, back.lost, back.sent)
	}
	done.add(f, "wrong_tables", wrong)
	done.add(f, "sent", float64(fell.sent))
	done.add(f, "lost", float64(fell.lost))
	done.add(f, "moved", float64(fell.moved))
}
