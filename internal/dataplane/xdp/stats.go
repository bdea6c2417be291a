// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// reading is the state of counters and services at one time.
type reading struct {
	exits   map[string]uint64
	traffic []dataplane.Traffic
	flows   []table.BalancerFlowStats
	// services are copies. Their versions are immutable.
	services []counted
}

type counted struct {
	vip lb.VIP
	service
}

// Stats reads all counters; a per-CPU counter is the sum over the processors. They are summed
// up without the plane's mu: with thousands of services changes would wait for tens of
// milliseconds.
func (p *Plane) Stats(ctx context.Context) (dataplane.Stats, error) {
	r, err := readCounters(ctx, p)
	if err != nil {
		return dataplane.Stats{}, err
	}
	stats := dataplane.Stats{Exits: r.exits, Services: make(map[lb.VIP]dataplane.ServiceStats, len(r.services))}
	for i := range r.services {
		s := &r.services[i]
		st := s.stats(func(counter uint32) dataplane.Traffic { return r.traffic[counter] })
		st.Tracking = s.tracking(r.flows[s.Number.Base])
		stats.Services[s.vip] = st
	}
	return stats, nil
}

// readCounters reads the counters, and retires the counters of backends that left.
func readCounters(ctx context.Context, p *Plane) (r reading, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return r, err
	}
	if r.exits, err = p.programs.Exits(); err != nil {
		return r, err
	}
	quiet := p.tables.Grace.Newest() // before reading: counters of backends that left earlier no longer grow
	if r.traffic, err = p.tables.ReadTraffic(); err != nil {
		return r, err
	}
	if r.flows, err = p.tables.ReadFlowStats(); err != nil {
		return r, err
	}
	if err := retireTraffic(p.tables, p.services, quiet, r.traffic); err != nil {
		return r, err
	}
	r.services = make([]counted, 0, len(p.services))
	for vip, s := range p.services {
		r.services = append(r.services, counted{vip, *s})
	}
	return r, nil
}

// stats sums up a service: its present backends and those that have left. A
// backend that left but may still have flows is not among the present ones.
func (s *service) stats(traffic func(counter uint32) dataplane.Traffic) dataplane.ServiceStats {
	st := dataplane.ServiceStats{Traffic: s.gone, Backends: s.backends}
	if !s.known {
		st.Backends = adoptedBackends(s.now.slots)
	}
	st.Shares = make([]dataplane.Traffic, len(st.Backends))
	next := 0 // most slots are in the order of the backends
	count := func(one *slot, share dataplane.Traffic) {
		st.Traffic = st.Add(share)
		if one == nil {
			return
		}
		id := one.id()
		at, present := next, next < len(st.Backends) && st.Backends[next].ID() == id
		if !present {
			at, present = lb.FindBackend(st.Backends, id)
		}
		if present {
			st.Shares[at], next = st.Shares[at].Add(share), at+1
		}
	}
	for _, l := range s.leaving {
		count(named(s.now.slots, l.backend), traffic(l.counter.Base).Sub(l.before))
	}
	for i := range s.now.slots {
		if one := &s.now.slots[i]; one.taken() {
			count(one, traffic(s.Counters.Base+uint32(i)).Sub(one.Before()))
		}
	}
	return st
}

// adoptedBackends returns the backends of slots that an earlier agent left, sorted.
func adoptedBackends(slots []slot) []lb.Backend {
	var backends []lb.Backend
	for i := range slots {
		if slots[i].taken() {
			id := slots[i].id()
			backends = append(backends, lb.Backend{Address: id.Addr(), Port: id.Port()})
		}
	}
	return lb.SortBackends(backends)
}

// tracking sums up the records of a service's flows.
func (s *service) tracking(f table.BalancerFlowStats) dataplane.Tracking {
	return dataplane.Tracking{
		Unstable: s.now.ring.Unstable(), Flows: s.flows.present + s.sessions,
		Hits: f.Hits, Misses: f.Misses, Inserts: f.Inserts, Unrecorded: f.Unrecorded, Evictions: s.flows.evicted(),
	}
}
