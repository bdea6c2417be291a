// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

const (
	// slack is how much too early a probe may begin, so that probes that are due
	// at about the same time begin together.
	slack = time.Millisecond
	// gather is how long verdicts wait for others to be reported with.
	gather = time.Millisecond
	// burst is how many new backends are probed at once; the others wait for
	// their part of the first interval.
	burst = 256
	// readiness is how soon a data plane that was not ready is asked again.
	readiness = 10 * time.Millisecond
	// complaints is how often trouble of this node is logged at most.
	complaints = time.Minute
)

// Config is what a Monitor needs.
type Config struct {
	// Paths are the ways to backends.
	Paths Paths
	// Report is told what is newly known, by one goroutine and in order: first
	// how a backend counts to begin with, then every change of Known, Healthy and
	// Share.
	Report func([]Verdict)
	Log    *slog.Logger
}

// Monitor probes the backends of the services that it is told of. One that is
// checked in the same way for several services is probed once for all of them.
// Its methods may be called at any time, by several goroutines.
type Monitor struct {
	paths     Paths
	report    func([]Verdict)
	log       *slog.Logger
	newProber func(*lb.HealthCheck) prober
	// most is how many probes may be on their way at the same time.
	most int

	// wake tells the scheduler, and news the reporter, that there is something.
	wake, news chan struct{}

	mu       sync.Mutex
	schedule schedule
	// asleep is until when the scheduler sleeps.
	asleep  time.Time
	targets map[targetKey]*target
	members map[subject]*member
	// present are the backends of the services of the last Set, checked or not;
	// nil before the first.
	present map[subject]bool
	// changed are the members whose state is to be reported.
	changed  []*member
	inFlight int
	totals   Totals
	// complained is when trouble of this node was last logged.
	complained time.Time
}

// Totals counts what a Monitor does.
type Totals struct {
	// Probes and Failures were made since the start, Local of them failed for want
	// of something on this node and said nothing about the backend.
	Probes, Failures, Local uint64
	// Targets are probed now, Backends hang on them.
	Targets, Backends int
}

// New returns a Monitor that probes nothing yet.
func New(c Config) *Monitor {
	return &Monitor{
		paths: c.Paths, report: c.Report, log: c.Log, newProber: newProber, most: maxProbes(),
		wake: make(chan struct{}, 1), news: make(chan struct{}, 1),
		targets: make(map[targetKey]*target), members: make(map[subject]*member),
	}
}

// Run probes until ctx ends, once in a Monitor's life. It returns when the last
// probe is over and all paths are released.
func (m *Monitor) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { m.deliver(ctx) })
	var probes sync.WaitGroup
	m.run(ctx, &probes)
	probes.Wait()
	group.Wait()
	m.Set(nil)
}

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
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, t.check.Timeout)
	err := t.attempt(limited, m.paths)
	cancel()
	now := time.Now()
	if ctx.Err() != nil {
		err = localError{ctx.Err()} // it was not the backend that was too slow
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
	local := m.count(err)
	notReady := errors.Is(err, ErrNotReady)
	if local && !notReady && now.Sub(m.complained) >= complaints {
		m.complained, complain = now, true
	}
	if len(t.members) == 0 {
		return t.release, complain
	}
	if !local {
		r := result{took: took}
		if err != nil {
			r.reason = reason(err, t.check.Timeout)
		}
		for _, b := range t.members {
			m.observe(b, r, now)
		}
	}
	due := t.next(err != nil, now)
	if notReady {
		due = now.Add(readiness)
	}
	m.plan(&t.task, due)
	return t.leavePath(err != nil || t.astray()), complain
}

// count adds a probe to the totals and reports whether it says nothing.
func (m *Monitor) count(err error) (local bool) {
	m.totals.Probes++
	if err == nil {
		return false
	}
	m.totals.Failures++
	if local = isLocal(err); local {
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
	if b.Share == fullShare {
		m.schedule.drop(&b.task)
		return
	}
	m.plan(&b.task, b.nextStep())
}

// Hint says that a backend has just refused a client's connection. If its check
// is passive it is probed now and, while it fails, at short intervals; one hint
// in each interval is heard.
func (m *Monitor) Hint(vip lb.VIP, backend lb.BackendID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.members[subject{vip, backend}]
	if b == nil || !b.passive || !b.Healthy {
		return
	}
	now, t := time.Now(), b.target
	if now.Sub(t.hinted) < t.check.Interval {
		return
	}
	t.hinted, t.hurry = now, b.fall
	if !t.inFlight {
		m.plan(&t.task, now)
	}
}

// States returns what is known of every backend that is checked, in no order.
func (m *Monitor) States() []Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	states := make([]Verdict, 0, len(m.members))
	for _, b := range m.members {
		states = append(states, b.verdict())
	}
	return states
}

// Totals returns what has been done so far.
func (m *Monitor) Totals() Totals {
	m.mu.Lock()
	defer m.mu.Unlock()
	totals := m.totals
	totals.Targets, totals.Backends = len(m.targets), len(m.members)
	return totals
}

// signal leaves a note for whoever waits; one is enough.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// jittered is an interval or up to a tenth less, so that backends which were
// first probed together don't stay together. It is never more: a dead backend is
// found within the time that its check promises.
func jittered(interval time.Duration) time.Duration {
	return interval - time.Duration(rand.Float64()*float64(interval)/10)
}
