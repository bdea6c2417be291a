// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

const (
	// pendingPause is when there is another look for a way that isn't known yet.
	pendingPause = 50 * time.Millisecond
	// logInterval is how often local failures are logged at most.
	logInterval = time.Minute
)

// probing is the state that probes share while a Monitor runs.
type probing struct {
	ctx    context.Context
	shares shares // guarded by the Monitor's lock
	probes sync.WaitGroup
}

// stopped returns a timer that calls do once it is reset.
func stopped(do func()) *time.Timer {
	timer := time.AfterFunc(time.Hour, do)
	timer.Stop()
	return timer
}

// plan has a target probed at a time, once the Monitor runs.
func (m *Monitor) plan(t *target, due time.Time) {
	t.due = due
	if m.probing != nil {
		t.timer.Reset(time.Until(due))
	}
}

// begin has a target probed whose probe is due, as soon as there is room.
func (m *Monitor) begin(t *target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.probing == nil || t.inFlight || len(t.members) == 0 {
		return
	}
	t.inFlight = true
	if t.release == nil {
		t.through, t.to = t.service, t.backend
	}
	m.probing.shares.wait(t)
	m.start(m.probing)
}

// start begins the waiting probes for which there is room.
func (m *Monitor) start(p *probing) {
	if m.probing != p {
		return // it ends
	}
	for t := p.shares.next(); t != nil; t = p.shares.next() {
		if t.late(time.Now()) {
			m.late.Inc()
		}
		who := t.tenant
		p.probes.Go(func() {
			m.probe(p.ctx, t)
			m.mu.Lock()
			defer m.mu.Unlock()
			p.shares.done(who)
			m.start(p)
		})
	}
}

// probe probes a target once.
func (m *Monitor) probe(ctx context.Context, t *target) {
	err := t.open(m.config.Paths) // takes none of the probe's time: it may be the first way of all
	start := time.Now()
	if err == nil {
		limited, cancel := limit(ctx, t.check.Timeout)
		if err = t.prober.Probe(limited, t.path); errors.Is(err, context.Canceled) {
			err = context.DeadlineExceeded
		}
		cancel()
	}
	now := time.Now()
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrLocal, ctx.Err()) // it was not the backend that was too slow
	}
	release, log := m.finish(t, err, now.Sub(start), now)
	if release != nil {
		release()
	}
	if log && ctx.Err() == nil {
		m.config.Log.Warn("health check failed locally", "backend", t.key.backend.Address, "error", err)
	}
}

// timeoutSteps is how many steps a time-out has: more than a probe has round trips.
const timeoutSteps = 8

// limit returns a context that is canceled after a time-out in which this process was
// running. Each step begins when the end of the last one has been noticed, and answers
// that arrived before have been read. So a process that is short of processor time, or
// was stopped, extends the time-out by its own delay, once for each step.
func limit(ctx context.Context, timeout time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	var timer *time.Timer
	steps := 0
	timer = stopped(func() {
		runtime.Gosched() // timers have priority over goroutines whose sockets are ready
		if steps++; steps == timeoutSteps {
			cancel()
		} else if ctx.Err() == nil {
			timer.Reset(timeout / timeoutSteps)
		}
	})
	timer.Reset(timeout / timeoutSteps)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

// finish records a result and schedules the next probe. It returns the path to
// release if there is no next probe, and whether to log the failure.
func (m *Monitor) finish(t *target, err error, took time.Duration, now time.Time) (release func(), log bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.inFlight = false
	if errors.Is(err, ErrPending) && len(t.members) > 0 {
		m.plan(t, now.Add(min(t.check.Interval, pendingPause)))
		return nil, false
	}
	local := errors.Is(err, ErrLocal)
	if local && now.Sub(m.lastLogged) >= logInterval {
		m.lastLogged, log = now, true
	}
	if len(t.members) == 0 {
		return t.release, log
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
	m.plan(t, t.next(err != nil, now))
	if err != nil || t.pathStale() { // opening the next path reports the state of the route
		release, t.release = t.release, nil
	}
	return release, log
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
	_, is := errors.AsType[Unresponsive](err)
	return is || errors.Is(err, context.DeadlineExceeded)
}

// observe applies a result to a backend.
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
		b.growth.Stop()
		return
	}
	b.growth.Reset(time.Until(b.nextStep()))
}

// grow raises the share of a backend in slow start.
func (m *Monitor) grow(b *member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.target == nil {
		return // removed meanwhile
	}
	if b.machine.ramp(time.Now()) {
		m.note(b)
	}
	m.ramp(b)
}

// jittered is an interval or up to a tenth less, so that backends which were
// first probed together don't stay together. It is never more: a dead backend is
// found within the time that its check promises.
func jittered(interval time.Duration) time.Duration {
	return interval - time.Duration(rand.Float64()*float64(interval)/10)
}
