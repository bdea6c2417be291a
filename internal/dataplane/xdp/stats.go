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

// reading is what counters and services were at one time.
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
		st := s.stats(r.traffic)
		st.Tracking = s.tracking(r.flows[s.number.Base])
		stats.Services[s.vip] = st
	}
	return stats, nil
}

// readCounters reads the counters, and retires those of backends that left.
func readCounters(ctx context.Context, p *Plane) (r reading, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return r, err
	}
	if r.exits, err = p.programs.Exits(); err != nil {
		return r, err
	}
	quiet := p.tables.Grace.Newest() // before reading: counters of what left earlier no longer grow
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
func (s *service) stats(traffic []dataplane.Traffic) dataplane.ServiceStats {
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
		count(named(s.now.slots, l.backend), traffic[l.counter.Base].Sub(l.before))
	}
	for i := range s.now.slots {
		if one := &s.now.slots[i]; one.taken() {
			count(one, traffic[s.now.counters.Base+uint32(i)].Sub(one.before()))
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
	read := func(counter uint32) (dataplane.Traffic, error) { return traffic[counter], nil }
	for vip, s := range services {
		if err := s.retireTraffic(t, quiet, read); err != nil {
			return fmt.Errorf("vip %s: %w", vip, err)
		}
	}
	return nil
}

// retireTraffic ends counters of backends that left, or moved, and that no packet on its way is
// counted by any more. What they counted is added to the backend's present counter, or to the
// service's total of former backends.
func (s *service) retireTraffic(t *table.Tables, quiet table.Ticket, read func(counter uint32) (dataplane.Traffic, error)) error {
	var waiting, over []leaver
	var sums []dataplane.Traffic
	for _, l := range s.leaving {
		if l.after > quiet {
			waiting = append(waiting, l)
			continue
		}
		sum, err := read(l.counter.Base)
		if err != nil {
			return err
		}
		over, sums = append(over, l), append(sums, sum.Sub(l.before))
	}
	if len(over) == 0 {
		return nil
	}
	var errs []error
	now := s.now
	for i, l := range over {
		if named(now.slots, l.backend) == nil {
			s.gone = s.gone.Add(sums[i])
		} else {
			if now == s.now { // others read it
				now = s.now.next()
				now.learned = s.now.learned
			}
			number := l.backend & 0xffff
			one := &now.slots[number]
			one.begin(one.before().Sub(sums[i]))
			errs = append(errs,
				table.WriteBefore(t, now.table.Base+number, one.detail.Before),
				table.WriteNewFlowsBefore(t, now.counters.Base+number, one.newFlowsBefore))
		}
		if l.moved {
			t.Counters.Release(l.counter)
		}
	}
	s.now, s.leaving = now, waiting
	return errors.Join(append(errs,
		table.WriteServiceDetail(t, s.number.Base, unsafe.Offsetof(table.BalancerServiceDetail{}.Gone), table.BalancerTraffic{Packets: s.gone.Packets, Bytes: s.gone.Bytes}),
		table.WriteServiceDetail(t, s.number.Base, unsafe.Offsetof(table.BalancerServiceDetail{}.GoneFlows), s.gone.NewFlows),
	)...)
}
