// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// samplePeriod is the time between two readings of the counters.
const samplePeriod = time.Second

// sampler reads the counters every samplePeriod and keeps the last two
// readings, so that rates are there when somebody asks.
type sampler struct {
	read func(context.Context) (dataplane.Stats, error)
	log  *slog.Logger

	mu   sync.Mutex
	last span
}

// span is the time between two readings. Its rates are 0 for what is not in
// both, or has been reset between them.
type span struct {
	from, to     dataplane.Stats
	began, ended time.Time
}

// run samples until ctx ends, and tells what each reading gave.
func (s *sampler) run(ctx context.Context, each func(span, error)) {
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	failing := false
	for {
		err := s.sample(ctx)
		if ctx.Err() != nil {
			return
		}
		each(s.latest(), err)
		if err != nil && !failing {
			s.log.Warn("counters unreadable", slog.Any("error", err))
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sample takes one reading. An error forgets the earlier ones: old rates would
// be taken for present ones.
func (s *sampler) sample(ctx context.Context) error {
	now, err := s.read(ctx)
	at := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.last = span{}
		return err
	}
	s.last = span{from: s.last.to, to: now, began: s.last.ended, ended: at}
	return nil
}

// latest returns the time between the last two readings.
func (s *sampler) latest() span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s span) perSecond(from, to uint64) float64 {
	elapsed := s.ended.Sub(s.began)
	if s.began.IsZero() || elapsed <= 0 || to < from {
		return 0
	}
	return float64(to-from) / elapsed.Seconds()
}

func (s span) exit(name string) float64 {
	from, known := s.from.Exits[name]
	if !known {
		return 0
	}
	return s.perSecond(from, s.to.Exits[name])
}

func (s span) service(vip lb.VIP) Rate {
	from, known := s.from.Services[vip]
	if !known {
		return Rate{}
	}
	return s.rate(from.Traffic, s.to.Services[vip].Traffic)
}

func (s span) backend(vip lb.VIP, id lb.BackendID) Rate {
	from, known := s.from.Services[vip].Backends[id]
	if !known {
		return Rate{}
	}
	return s.rate(from, s.to.Services[vip].Backends[id])
}

func (s span) rate(from, to dataplane.Traffic) Rate {
	return Rate{
		PacketsPerSecond:  s.perSecond(from.Packets, to.Packets),
		BytesPerSecond:    s.perSecond(from.Bytes, to.Bytes),
		NewFlowsPerSecond: s.perSecond(from.NewFlows, to.NewFlows),
	}
}
