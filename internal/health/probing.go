// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

const (
	// slack is how much too early a probe may begin, so that probes that are due
	// at about the same time begin together.
	slack = time.Millisecond
	// pendingPause is when there is another look for a way that isn't known yet.
	pendingPause = 50 * time.Millisecond
	// complaints is how often trouble of this node is logged at most.
	complaints = time.Minute
)

// run starts probes as they fall due.
func (m *Monitor) run(ctx context.Context, probes *sync.WaitGroup) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		started, wait := m.due(time.Now())
		for _, t := range started {
			probes.Go(func() { m.probe(ctx, t) })
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.wake:
		}
	}
}

// due takes what is due out of the schedule: it returns the targets to be probed
// now, and how long there is nothing else to do.
func (m *Monitor) due(now time.Time) (started []*target, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.inFlight < m.most {
		next := m.schedule.pop(now.Add(slack))
		if next == nil {
			break
		}
		if t := next.do(later(now, next.due)); t != nil {
			m.inFlight++
			t.inFlight = true
			if t.release == nil {
				t.through, t.to = t.service, t.backend
			}
			started = append(started, t)
		}
	}
	due, ok := m.schedule.next()
	if !ok || m.inFlight == m.most {
		due = now.Add(time.Hour) // or until somebody wakes the scheduler
	}
	m.asleep = due
	return started, max(0, due.Sub(now))
}

// plan puts a task into the schedule, and wakes the scheduler if it sleeps too
// long for it.
func (m *Monitor) plan(t *task, due time.Time) {
	m.schedule.set(t, due)
	if due.Before(m.asleep) {
		signal(m.wake)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// probe probes a target once.
func (m *Monitor) probe(ctx context.Context, t *target) {
	err := t.open(m.paths) // takes none of the probe's time: it may be the first way of all
	start := time.Now()
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, t.check.Timeout)
		err = t.prober.Probe(limited, t.path)
		cancel()
	}
	now := time.Now()
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrLocal, ctx.Err()) // it was not the backend that was too slow
	}
	release, complain := m.finish(t, err, now.Sub(start), now)
	if release != nil {
		release()
	}
	if complain && ctx.Err() == nil {
		m.log.Warn("health checks can't be made", "backend", t.key.backend.Address, "error", err)
	}
}

// finish takes note of how a probe went, and when the next one is due. It
// returns what is to be released if there is to be none, and whether trouble of
// this node is to be logged.
func (m *Monitor) finish(t *target, err error, took time.Duration, now time.Time) (release func(), complain bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inFlight == m.most {
		signal(m.wake)
	}
	m.inFlight--
	t.inFlight = false
	if errors.Is(err, ErrPending) && len(t.members) > 0 {
		m.plan(&t.task, now.Add(min(t.check.Interval, pendingPause)))
		return nil, false
	}
	local := m.count(err)
	if local && now.Sub(m.complained) >= complaints {
		m.complained, complain = now, true
	}
	if len(t.members) == 0 {
		return t.release, complain
	}
	if !local {
		r := result{took: took}
		if err != nil {
			r.reason, r.silent = reason(err, t.check.Timeout), silent(err)
		}
		for _, b := range t.members {
			m.observe(b, r, now)
		}
	}
	m.plan(&t.task, t.next(err != nil, now))
	return t.leavePath(err != nil || t.astray()), complain
}

// reason says why a probe failed.
func reason(err error, timeout time.Duration) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("timed out after %s", timeout)
	}
	return err.Error()
}

// silent reports whether nothing came back from the backend.
func silent(err error) bool {
	_, is := errors.AsType[Silence](err)
	return is || errors.Is(err, context.DeadlineExceeded)
}

// count adds a probe to the totals and reports whether it says nothing.
func (m *Monitor) count(err error) (local bool) {
	m.totals.Probes++
	if err == nil {
		return false
	}
	m.totals.Failures++
	if local = errors.Is(err, ErrLocal); local {
		m.totals.Local++
	}
	return local
}

// observe tells a backend of a result.
func (m *Monitor) observe(b *member, r result, now time.Time) {
	if !b.machine.observe(r, now) {
		return
	}
	m.note(b)
	m.ramp(b)
}

// ramp lets the share of a backend grow as long as it is in slow start.
func (m *Monitor) ramp(b *member) {
	if b.Share == lb.WholeShare {
		m.schedule.drop(&b.task)
		return
	}
	m.plan(&b.task, b.nextStep())
}

// growth is the task of a backend in slow start.
func (m *Monitor) growth(b *member) func(now time.Time) *target {
	return func(now time.Time) *target {
		if b.machine.ramp(now) {
			m.note(b)
		}
		m.ramp(b)
		return nil
	}
}

// jittered is an interval or up to a tenth less, so that backends which were
// first probed together don't stay together. It is never more: a dead backend is
// found within the time that its check promises.
func jittered(interval time.Duration) time.Duration {
	return interval - time.Duration(rand.Float64()*float64(interval)/10)
}
