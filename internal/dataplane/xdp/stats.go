// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Stats reads all counters; a per-CPU counter is the sum over the processors.
func (p *Plane) Stats(ctx context.Context) (dataplane.Stats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return dataplane.Stats{}, err
	}
	exits, err := p.kernel.exits.Read()
	if err != nil {
		return dataplane.Stats{}, err
	}
	quiet := p.grace.newest() // before reading: counters of what left earlier no longer grow
	traffic, err := p.kernel.readTraffic(p.trafficUsed())
	if err != nil {
		return dataplane.Stats{}, err
	}
	flows, err := p.kernel.readFlowStats(p.numbersUsed())
	if err != nil {
		return dataplane.Stats{}, err
	}
	stats := dataplane.Stats{Exits: exits, Services: make(map[lb.VIP]dataplane.ServiceStats, len(p.services))}
	for vip, s := range p.services {
		if err := p.retireTraffic(s, quiet, traffic); err != nil {
			return dataplane.Stats{}, fmt.Errorf("vip %s: %w", vip, err)
		}
		st := s.stats(traffic)
		st.Tracking = s.tracking(flows[s.number.base])
		stats.Services[vip] = st
	}
	return stats, nil
}

// stats sums up a service: its present backends and those that have left. A
// backend that left but may still have flows is not among the present ones.
func (s *service) stats(traffic []dataplane.Traffic) dataplane.ServiceStats {
	st := dataplane.ServiceStats{Traffic: s.gone, Backends: make(map[lb.BackendID]dataplane.Traffic, len(s.backends))}
	for _, l := range s.leaving {
		st.Traffic = st.Add(traffic[l.traffic.base])
	}
	for i := range s.now.slots {
		one := &s.now.slots[i]
		if !one.taken() {
			continue
		}
		st.Traffic = st.Add(traffic[one.Stats])
		if s.wanted(one) {
			st.Backends[one.id()] = traffic[one.Stats]
		}
	}
	return st
}

// tracking sums up what is remembered of a service's flows.
func (s *service) tracking(f balancerFlowStats) dataplane.Tracking {
	return dataplane.Tracking{
		Unstable: s.now.ring.Unstable(), Flows: s.flows.present,
		Hits: f.Hits, Misses: f.Misses, Inserts: f.Inserts, Evictions: s.flows.evicted(),
	}
}

// retireTraffic adds the traffic of backends that left, and to which no packet is on
// its way any more, to what the service remembers, and frees their counters.
func (p *Plane) retireTraffic(s *service, quiet ticket, traffic []dataplane.Traffic) error {
	var waiting []leaver
	gone := s.gone
	for _, l := range s.leaving {
		if l.after > quiet {
			waiting = append(waiting, l)
			continue
		}
		gone = gone.Add(traffic[l.traffic.base])
		p.traffic.release(l.traffic)
	}
	if len(waiting) == len(s.leaving) {
		return nil
	}
	s.gone, s.leaving = gone, waiting
	offset := serviceOffset(s.number.base) + unsafe.Offsetof(balancerService{}.Gone)
	return write(p.kernel.services, offset, balancerTraffic{Packets: gone.Packets, Bytes: gone.Bytes})
}

// trafficUsed is one more than the largest index of a counter in use.
func (p *Plane) trafficUsed() uint32 { return p.traffic.used(uint32(p.kernel.capacity.Backends)) }

// clearTraffic sets a counter to zero on all processors.
func (t *tables) clearTraffic(index uint32) error {
	return t.maps.BackendStats.Put(index, make([]balancerTraffic, ebpf.MustPossibleCPU()))
}

// readTraffic returns the first n counters.
func (t *tables) readTraffic(n uint32) ([]dataplane.Traffic, error) {
	sums := make([]dataplane.Traffic, n)
	err := readPerCPU(t.maps.BackendStats, n, func(i uint32, v balancerTraffic) {
		sums[i] = sums[i].Add(dataplane.Traffic{Packets: v.Packets, Bytes: v.Bytes})
	})
	return sums, err
}

// numbersUsed is one more than the largest service number in use.
func (p *Plane) numbersUsed() uint32 { return p.numbers.used(uint32(p.kernel.capacity.Services) + 1) }

// clearFlowStats sets what a service's flows have counted to zero.
func (t *tables) clearFlowStats(number uint32) error {
	return t.maps.FlowStats.Put(number, make([]balancerFlowStats, ebpf.MustPossibleCPU()))
}

// readFlowStats returns the counts of the first n service numbers.
func (t *tables) readFlowStats(n uint32) ([]balancerFlowStats, error) {
	sums := make([]balancerFlowStats, n)
	err := readPerCPU(t.maps.FlowStats, n, func(i uint32, v balancerFlowStats) {
		sums[i].Hits += v.Hits
		sums[i].Misses += v.Misses
		sums[i].Inserts += v.Inserts
	})
	return sums, err
}

// readPerCPU calls add with each processor's value of the first n elements.
func readPerCPU[T any](m *ebpf.Map, n uint32, add func(i uint32, v T)) error {
	if n == 0 {
		return nil
	}
	cpus := ebpf.MustPossibleCPU()
	var cursor ebpf.MapBatchCursor
	keys := make([]uint32, n)
	values := make([]T, int(n)*cpus)
	got, err := m.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("counters %s: %w", m, err)
	}
	for i := range got {
		for _, v := range values[i*cpus : (i+1)*cpus] {
			add(keys[i], v)
		}
	}
	return nil
}
