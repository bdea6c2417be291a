// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// Stats reads all counters, and retires the counters of backends that left. A per-CPU counter is the
// sum over the processors. Services are summed up without the plane's mu: with thousands of them
// changes would wait for tens of milliseconds.
func (p *Plane) Stats(ctx context.Context) (stats dataplane.Stats, err error) {
	type counted struct {
		vip lb.VIP
		service
	}
	var services []counted // copies, whose versions are immutable
	var traffic []dataplane.Traffic
	var flows []table.BalancerFlowStats
	err = p.with(ctx, func() (err error) {
		quiet := p.tables.Grace.Newest() // before reading: counters of backends that left earlier no longer grow
		if stats.Exits, err = p.programs.Exits(); err != nil {
			return err
		}
		if traffic, err = p.tables.ReadTraffic(); err != nil {
			return err
		}
		if flows, err = p.tables.ReadFlowStats(); err != nil {
			return err
		}
		if err := retireTraffic(p.tables, p.services, quiet, traffic); err != nil {
			return err
		}
		services = make([]counted, 0, len(p.services))
		for vip, s := range p.services {
			services = append(services, counted{vip, *s})
		}
		return nil
	})
	if err != nil {
		return dataplane.Stats{}, err
	}
	stats.Services = make(map[lb.VIP]dataplane.ServiceStats, len(services))
	for i := range services {
		s := &services[i]
		st := s.stats(func(counter uint32) dataplane.Traffic { return traffic[counter] })
		st.Tracking = s.tracking(flows[s.Number.Base])
		stats.Services[s.vip] = st
	}
	return stats, nil
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
