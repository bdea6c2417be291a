// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// ErrEnded says that nobody observes the agent any more.
var ErrEnded = errors.New("the agent has stopped")

// Observer reads an agent's counters once a second, for all who look at it. Its
// methods may be called from several goroutines.
type Observer struct {
	agent   Agent
	sampler *sampler

	mu      sync.Mutex
	history *history
	moment  *Moment
	ended   bool
	// changed is closed when one of the above has changed.
	changed chan struct{}
}

// NewObserver returns an observer of the agent.
func NewObserver(agent Agent, log *slog.Logger) *Observer {
	return &Observer{
		agent:   agent,
		sampler: &sampler{read: agent.Stats, log: log},
		history: newHistory(),
		changed: make(chan struct{}),
	}
}

// Run observes until ctx ends.
func (o *Observer) Run(ctx context.Context) {
	o.sampler.run(ctx, o.publish)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	close(o.changed)
}

// publish makes a reading, or the error of one, the latest moment.
func (o *Observer) publish(s span, err error) {
	moment := newMoment(&o.agent, s, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.history.add(s)
	} else {
		o.history.gap()
	}
	o.moment = moment
	close(o.changed)
	o.changed = make(chan struct{})
}

// Next returns the latest moment, and waits for it if that is still the given
// one, or none. The error is ctx's, or ErrEnded.
func (o *Observer) Next(ctx context.Context, after *Moment) (*Moment, error) {
	for {
		o.mu.Lock()
		moment, ended, changed := o.moment, o.ended, o.changed
		o.mu.Unlock()
		switch {
		case ended:
			return nil, ErrEnded
		case moment != after:
			return moment, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// History returns how the totals went.
func (o *Observer) History() History {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.history.shown()
}

// ServiceHistory returns a service's packets a second; nil if it has been idle
// all the time.
func (o *Observer) ServiceHistory(vip lb.VIP) Points {
	o.mu.Lock()
	defer o.mu.Unlock()
	ring := o.history.services[vip]
	if ring == nil {
		return nil
	}
	return o.history.points(ring)
}

// Events returns what happened, the latest first, and how often something has.
func (o *Observer) Events() (events []Event, count uint64) { return o.agent.Events.Latest() }

// Moment is an agent as it is at one reading of its counters. What is asked of
// it is worked out once, for all who look at the same moment; nothing of it is
// to be changed.
type Moment struct {
	// Time is when the counters were read. Err says why they couldn't be: all
	// counters are zero then.
	Time time.Time
	Err  error

	totals   func() Totals
	view     func() view
	status   func() Status
	services func() []Service
	routes   func() Routes
}

func newMoment(agent *Agent, s span, err error) *Moment {
	m := &Moment{Time: time.Now(), Err: err}
	m.totals = sync.OnceValue(s.totals)
	m.view = sync.OnceValue(func() view { return agent.view(s.to, s) })
	m.status = sync.OnceValue(func() Status { return agent.status(m.view()) })
	m.services = sync.OnceValue(func() []Service { return m.view().services() })
	m.routes = sync.OnceValue(agent.routes)
	return m
}

// Totals are the rates of all services together.
func (m *Moment) Totals() Totals { return m.totals() }

// Status is the agent as a whole.
func (m *Moment) Status() Status { return m.status() }

// Services are all services by VIP.
func (m *Moment) Services() []Service { return m.services() }

// Routes are what is announced, and the peers.
func (m *Moment) Routes() Routes { return m.routes() }

// Backends are those of the desired services for which wanted is true, by VIP
// and address.
func (m *Moment) Backends(wanted func(lb.VIP) bool) []Backend {
	v := m.view()
	backends := []Backend{}
	for _, entry := range v.desired.Services {
		if wanted(entry.Service.VIP) {
			backends = append(backends, v.backendsOf(entry)...)
		}
	}
	return backends
}
