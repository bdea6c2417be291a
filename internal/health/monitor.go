// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Config is what a Monitor needs.
type Config struct {
	// Paths are the ways to backends.
	Paths Paths
	// Prober returns what probes backends as a check says.
	Prober func(*lb.HealthCheck) Prober
	// Probes is how many probes may be on their way at the same time; more than 0.
	Probes int
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
	newProber func(*lb.HealthCheck) Prober
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
	// present are the services that there are, without those that have no backends;
	// nil before the first Set.
	present map[lb.VIP]backends
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
		paths: c.Paths, report: c.Report, log: c.Log, newProber: c.Prober, most: c.Probes,
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

// StatesOf returns what is known of those backends of services that are checked.
func (m *Monitor) StatesOf(services []lb.Service) []Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	var states []Verdict
	for i := range services {
		for _, b := range services[i].Backends {
			if b := m.members[subject{services[i].VIP, b.ID()}]; b != nil {
				states = append(states, b.verdict())
			}
		}
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
