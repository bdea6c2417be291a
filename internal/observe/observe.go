// SPDX-License-Identifier: Apache-2.0

// Package observe shows an agent: its state as JSON and as tables, rates, liveness and
// readiness. The control socket, the status page and the metrics serve them. Observe reads
// and changes nothing.
package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/internal/wait"
)

// Agent is an agent that is shown. Its methods may be called from several
// goroutines.
type Agent interface {
	// Describe returns a Status without counts, routes and exits.
	Describe() Status
	// Snapshot is the desired state, and the state of the data plane.
	Snapshot() store.Snapshot
	// Routes are the announcements, and the peers.
	Routes() Routes
	// Stats reads the data plane's counters.
	Stats(ctx context.Context) (dataplane.Stats, error)
	// Calling is when the call that the data plane is working on began; zero without
	// one.
	Calling() time.Time
	// Attached reports whether the first configuration has been tried and the data plane
	// attached.
	Attached() bool
}

// ErrEnded is returned when the agent is no longer observed.
var ErrEnded = errors.New("the agent has stopped")

// Observer reads an agent's counters once a second, for all viewers. Its methods
// may be called from several goroutines.
type Observer struct {
	agent   Agent
	events  *Recorder
	log     *slog.Logger
	started time.Time
	state   wait.Value[state]
}

// state is the state of an Observer. Its history is only used under the Value's lock.
type state struct {
	history *history
	latest  *Snapshot
	// rates are those between the last two readings; zero after one that failed, as
	// old rates would be taken for present ones.
	rates interval
	ended bool
}

// NewObserver returns an observer of the agent.
func NewObserver(agent Agent, events *Recorder, log *slog.Logger) *Observer {
	o := &Observer{agent: agent, events: events, log: log, started: time.Now()}
	o.state.Set(state{history: newHistory()})
	return o
}

// Run observes until ctx ends.
func (o *Observer) Run(ctx context.Context) {
	defer o.state.Modify(func(s *state) { s.ended = true })
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	failing := false
	for {
		stats, err := o.agent.Stats(ctx)
		if ctx.Err() != nil {
			return
		}
		o.publish(stats, err)
		if err != nil && !failing {
			o.log.Warn("counters unreadable", slog.Any("error", err))
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// publish makes a reading, or the error of one, the latest snapshot.
func (o *Observer) publish(stats dataplane.Stats, err error) {
	before, rates := o.state.Get().rates, interval{}
	if err == nil {
		rates = interval{from: before.to, to: stats, began: before.ended, ended: time.Now()}
	}
	latest := newSnapshot(o.agent, rates.to, rates, err)
	o.state.Modify(func(s *state) {
		if err == nil {
			s.history.add(rates)
		} else {
			s.history.gap()
		}
		s.rates, s.latest = rates, latest
	})
}

// Next returns the latest snapshot, and waits for it if that is still the given
// one, or none. The error is ctx's, or ErrEnded.
func (o *Observer) Next(ctx context.Context, after *Snapshot) (*Snapshot, error) {
	s, err := o.state.Await(ctx, func(s state) bool { return s.ended || s.latest != after })
	switch {
	case err != nil:
		return nil, err
	case s.ended:
		return nil, ErrEnded
	}
	return s.latest, nil
}

// Read returns a snapshot of this moment, with the rates of the last full second.
// It is an error if the counters can't be read.
func (o *Observer) Read(ctx context.Context) (*Snapshot, error) {
	stats, err := o.agent.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return newSnapshot(o.agent, stats, o.state.Get().rates, nil), nil
}

// Routes are the announcements, and the peers, with no list missing.
func (o *Observer) Routes() Routes { return o.agent.Routes().complete() }

// History returns how the totals went.
func (o *Observer) History() (shown History) {
	o.state.View(func(s *state) { shown = s.history.shown() })
	return shown
}

// ServiceHistory returns a service's packets a second; nil if it has been idle
// all the time.
func (o *Observer) ServiceHistory(vip lb.VIP) (points Points) {
	o.state.View(func(s *state) {
		if ring := s.history.services[vip]; ring != nil {
			points = s.history.points(ring)
		}
	})
	return points
}

// Events returns the latest events, the latest first.
func (o *Observer) Events() []Event { return o.events.Latest() }

// hangTime is how long one call of the data plane, or one reading of its counters,
// may take before the agent counts as stuck. Even thousands of services take a few
// seconds, one by one.
const hangTime = 30 * time.Second

// Alive returns an error if a part of the agent hangs, so that it should be restarted. A
// configuration that can't be programmed doesn't count, nor do counters that can't be read.
func (o *Observer) Alive() error {
	var stuck []error
	if since := o.agent.Calling(); !since.IsZero() {
		if took := time.Since(since); took > hangTime {
			stuck = append(stuck, fmt.Errorf("reconcile: the data plane has been at one call for %s", took.Round(time.Second)))
		}
	}
	last := o.started
	if latest := o.state.Get().latest; latest != nil {
		last = latest.Time
	}
	if age := time.Since(last); age > hangTime {
		stuck = append(stuck, fmt.Errorf("observe: the counters were last read %s ago", age.Round(time.Second)))
	}
	return errors.Join(stuck...)
}

// Ready returns all reasons why the node should get no packets of VIPs; nil if it
// should.
func (o *Observer) Ready() error {
	var reasons []error
	status := o.agent.Describe()
	if !o.agent.Attached() {
		reasons = append(reasons, errors.New("the first configuration has not been tried yet"))
	} else if len(status.DataPlane.Attachments) == 0 {
		reasons = append(reasons, errors.New("the data plane is attached to no interface"))
	}
	for i := range status.FollowedBackends {
		if f := &status.FollowedBackends[i]; f.Awaited {
			reasons = append(reasons, fmt.Errorf("service %s: no backends yet from %s: %s", f.Service, f.From, cmp.Or(f.Error, "no answer")))
		}
	}
	if drain, draining := o.agent.Snapshot().Draining(store.Target{}); draining {
		reasons = append(reasons, fmt.Errorf("the node is drained since %s", drain.Since.UTC().Format(time.RFC3339)))
	}
	return errors.Join(reasons...)
}
