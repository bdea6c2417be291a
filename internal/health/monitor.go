// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.io/fairlead/internal/lb"
)

// Config configures a Monitor.
type Config struct {
	// Paths are the ways to backends.
	Paths Paths
	// Prober returns the Prober of a check.
	Prober func(*lb.HealthCheck) Prober
	// Probes is how many probes may be on their way at the same time; more than 0. Namespaces
	// share them fairly.
	Probes int
	// Report is called, by one goroutine, when there are new verdicts: first how a
	// backend counts before its first probe, then on every change of Known, Healthy and
	// Share. They are as take returns them; it returns each once, and is called before
	// Report returns.
	Report func(take func() []Verdict)
	// Earlier are verdicts of an earlier process by Identity. The backends of the first
	// services have them.
	Earlier map[string]State
	Log     *slog.Logger
}

// Monitor probes the backends of services. A backend that several services of a namespace
// check in the same way is probed once for all of them.
// Its methods may be called at any time, by several goroutines.
type Monitor struct {
	config Config
	// news notifies the reporter of verdicts.
	news chan struct{}
	// late counts probes that began too late.
	late prometheus.Counter

	mu sync.Mutex
	// probing is nil unless the Monitor runs.
	probing *probing
	targets map[targetKey]*target
	members map[subject]*member
	// present are the services that there are, without those that have no backends;
	// nil before the first Set.
	present map[lb.VIP]backends
	// changed are the members whose state is to be reported.
	changed []*member
	// lastLogged is when a local failure was last logged.
	lastLogged time.Time
}

// New returns a Monitor that probes nothing yet.
func New(c Config) *Monitor {
	return &Monitor{
		config: c, news: make(chan struct{}, 1),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_health_probes_late_total",
			Help: "Probes of backends that began more than half of their interval late, because too many others were in flight.",
		}),
		targets: make(map[targetKey]*target), members: make(map[subject]*member),
	}
}

// Metrics returns the metrics of all probes.
func (m *Monitor) Metrics() []prometheus.Collector { return []prometheus.Collector{m.late} }

// Run probes until ctx ends, once in a Monitor's life. It returns when the last
// probe is over and all paths are released.
func (m *Monitor) Run(ctx context.Context) {
	p := &probing{ctx: ctx, shares: newShares(m.config.Probes)}
	m.mu.Lock()
	m.probing = p
	for _, t := range m.targets {
		m.plan(t, t.due)
	}
	m.mu.Unlock()
	m.deliver(ctx)
	m.mu.Lock()
	m.probing = nil
	var released []func()
	for _, t := range p.shares.drop() {
		t.inFlight = false
		if len(t.members) == 0 && t.release != nil { // removed while it waited
			released = append(released, t.release)
		}
	}
	m.mu.Unlock()
	for _, release := range released {
		release()
	}
	p.probes.Wait()
	m.Set(nil)
}

// Hint says that a backend has just refused a client's connection. If its check
// is passive it is probed now and, while it fails, at short intervals; at most one hint
// is followed in each interval.
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
	t.hinted, t.fastProbes = now, b.fall
	if !t.inFlight {
		m.plan(t, now)
	}
}

// States returns the state of every backend that is checked, in no order.
func (m *Monitor) States() []Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	states := make([]Verdict, 0, len(m.members))
	for _, b := range m.members {
		states = append(states, b.verdict())
	}
	return states
}

// StatesOf returns the states of the services' backends that are checked.
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

// gather is how long verdicts wait for others to be reported with.
const gather = time.Millisecond

// note has a member's state reported.
func (m *Monitor) note(b *member) {
	if !b.changed {
		b.changed = true
		m.changed = append(m.changed, b)
	}
	select {
	case m.news <- struct{}{}:
	default: // one pending signal is enough
	}
}

// deliver reports changes until ctx ends. A change waits a moment for
// others, as one of many backends costs the store no more than one of one.
func (m *Monitor) deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.news:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gather):
		}
		m.config.Report(m.takeChanged)
	}
}

// takeChanged returns the states of the members that have changed; those that
// are gone are left out.
func (m *Monitor) takeChanged() []Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	verdicts := make([]Verdict, 0, len(m.changed))
	for _, b := range m.changed {
		b.changed = false
		if b.target != nil {
			verdicts = append(verdicts, b.verdict())
		}
	}
	m.changed = m.changed[:0]
	return verdicts
}
