// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// Stats reads all counters; a per-CPU counter is the sum over the processors.
func (p *Plane) Stats(ctx context.Context) (dataplane.Stats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return dataplane.Stats{}, err
	}
	exits, err := p.programs.Exits()
	if err != nil {
		return dataplane.Stats{}, err
	}
	quiet := p.tables.Grace.Newest() // before reading: counters of what left earlier no longer grow
	traffic, err := p.tables.ReadTraffic()
	if err != nil {
		return dataplane.Stats{}, err
	}
	flows, err := p.tables.ReadFlowStats()
	if err != nil {
		return dataplane.Stats{}, err
	}
	if err := retireTraffic(p.tables, p.services, quiet, traffic); err != nil {
		return dataplane.Stats{}, err
	}
	stats := dataplane.Stats{Exits: exits, Services: make(map[lb.VIP]dataplane.ServiceStats, len(p.services))}
	for vip, s := range p.services {
		st := s.stats(traffic)
		st.Tracking = s.tracking(flows[s.number.Base])
		stats.Services[vip] = st
	}
	return stats, nil
}

// stats sums up a service: its present backends and those that have left. A
// backend that left but may still have flows is not among the present ones.
func (s *service) stats(traffic []dataplane.Traffic) dataplane.ServiceStats {
	st := dataplane.ServiceStats{Traffic: s.gone, Backends: s.backends}
	if !s.known {
		st.Backends = adoptedBackends(s.now.slots)
	}
	st.Shares = make([]dataplane.Traffic, len(st.Backends))
	for _, l := range s.leaving {
		st.Traffic = st.Add(l.since(traffic))
	}
	for i := range s.now.slots {
		one := &s.now.slots[i]
		if !one.taken() {
			continue
		}
		share := one.since(traffic)
		st.Traffic = st.Add(share)
		if at, present := lb.FindBackend(st.Backends, one.id()); present {
			st.Shares[at] = share
		}
	}
	return st
}

// adoptedBackends are those of slots that an earlier agent left, sorted.
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

// tracking sums up what is remembered of a service's flows.
func (s *service) tracking(f table.BalancerFlowStats) dataplane.Tracking {
	return dataplane.Tracking{
		Unstable: s.now.ring.Unstable(), Flows: s.flows.present + s.sessions,
		Hits: f.Hits, Misses: f.Misses, Inserts: f.Inserts, Unrecorded: f.Unrecorded, Evictions: s.flows.evicted(),
	}
}

// hasLeavers reports whether a service has backends that left before that ticket.
func hasLeavers(services map[lb.VIP]*service, quiet table.Ticket) bool {
	for _, s := range services {
		if slices.ContainsFunc(s.leaving, func(l leaver) bool { return l.after <= quiet }) {
			return true
		}
	}
	return false
}

// retireTraffic is service.retireTraffic of all services.
func retireTraffic(t *table.Tables, services map[lb.VIP]*service, quiet table.Ticket, traffic []dataplane.Traffic) error {
	for vip, s := range services {
		if err := s.retireTraffic(t, quiet, traffic); err != nil {
			return fmt.Errorf("vip %s: %w", vip, err)
		}
	}
	return nil
}

// retireTraffic adds the traffic of backends that left, and to which no packet is on
// its way any more, to the service's total of former backends, and frees their
// counters.
func (s *service) retireTraffic(t *table.Tables, quiet table.Ticket, traffic []dataplane.Traffic) error {
	var waiting []leaver
	gone := s.gone
	for _, l := range s.leaving {
		if l.after > quiet {
			waiting = append(waiting, l)
			continue
		}
		gone = gone.Add(l.since(traffic))
		t.Counters.Release(l.traffic())
	}
	if len(waiting) == len(s.leaving) {
		return nil
	}
	s.gone, s.leaving = gone, waiting
	return errors.Join(
		table.WriteService(t, s.number.Base, unsafe.Offsetof(table.BalancerService{}.Gone), table.BalancerTraffic{Packets: gone.Packets, Bytes: gone.Bytes}),
		table.WriteService(t, s.number.Base, unsafe.Offsetof(table.BalancerService{}.GoneFlows), gone.NewFlows),
	)
}
