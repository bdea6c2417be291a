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
		st.Traffic = st.Add(l.since(traffic))
	}
	for i := range s.now.slots {
		one := &s.now.slots[i]
		if !one.taken() {
			continue
		}
		st.Traffic = st.Add(one.since(traffic))
		if s.wanted(one) {
			st.Backends[one.id()] = one.since(traffic)
		}
	}
	return st
}

// tracking sums up what is remembered of a service's flows.
func (s *service) tracking(f balancerFlowStats) dataplane.Tracking {
	return dataplane.Tracking{
		Unstable: s.now.ring.Unstable(), Flows: s.flows.present + s.sessions,
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
		gone = gone.Add(l.since(traffic))
		p.traffic.release(l.traffic())
	}
	if len(waiting) == len(s.leaving) {
		return nil
	}
	s.gone, s.leaving = gone, waiting
	offset := serviceOffset(s.number.base)
	return errors.Join(
		write(p.kernel.services, offset+unsafe.Offsetof(balancerService{}.Gone), balancerTraffic{Packets: gone.Packets, Bytes: gone.Bytes}),
		write(p.kernel.services, offset+unsafe.Offsetof(balancerService{}.GoneFlows), gone.NewFlows),
	)
}

// trafficUsed is one more than the largest index of a counter in use.
func (p *Plane) trafficUsed() uint32 { return p.traffic.used(uint32(p.kernel.capacity.Backends)) }

// trafficChunk is the number of counters in one element of their table.
const trafficChunk = uint32(len(balancerTrafficChunk{}.Entry))

// trafficChunks is the number of elements that hold n counters.
func trafficChunks(n uint32) uint32 { return (n + trafficChunk - 1) / trafficChunk }

// counted is what a counter has counted since the tables were made.
func (t *tables) counted(index uint32) (sum balancerTraffic, err error) {
	var values []balancerTrafficChunk
	if err := t.maps.BackendStats.Lookup(index/trafficChunk, &values); err != nil {
		return sum, fmt.Errorf("traffic counter: %w", err)
	}
	for i := range values {
		sum.Packets += values[i].Entry[index%trafficChunk].Packets
		sum.Bytes += values[i].Entry[index%trafficChunk].Bytes
	}
	return sum, nil
}

// readTraffic returns what at least the first n counters have counted since the
// tables were made.
func (t *tables) readTraffic(n uint32) ([]dataplane.Traffic, error) {
	sums := make([]dataplane.Traffic, trafficChunks(n)*trafficChunk)
	err := readPerCPU(t.maps.BackendStats, trafficChunks(n), func(i uint32, v *balancerTrafficChunk) {
		for j := range v.Entry {
			sum := &sums[i*trafficChunk+uint32(j)]
			*sum = sum.Add(dataplane.Traffic{Packets: v.Entry[j].Packets, Bytes: v.Entry[j].Bytes})
		}
	})
	if err != nil {
		return nil, err
	}
	return sums, readPerCPU(t.maps.NewFlows, trafficChunks(n), func(i uint32, v *balancerNewFlowsChunk) {
		for j, flows := range v.Entry {
			sums[i*trafficChunk+uint32(j)].NewFlows += flows
		}
	})
}

// beginNewFlows notes, also for a later agent, what a counter of new flows has
// counted since the tables were made: the backend that has it from now on begins
// there.
func (t *tables) beginNewFlows(index uint32) (counted uint64, err error) {
	var values []balancerNewFlowsChunk
	if err := t.maps.NewFlows.Lookup(index/trafficChunk, &values); err != nil {
		return 0, fmt.Errorf("counter of new flows: %w", err)
	}
	for i := range values {
		counted += values[i].Entry[index%trafficChunk]
	}
	return counted, write(t.before, uintptr(index)*unsafe.Sizeof(counted), counted)
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
	err := readPerCPU(t.maps.FlowStats, n, func(i uint32, v *balancerFlowStats) {
		sums[i].Hits += v.Hits
		sums[i].Misses += v.Misses
		sums[i].Inserts += v.Inserts
	})
	return sums, err
}

// readPerCPU calls add with each processor's value of the first n elements.
func readPerCPU[T any](m *ebpf.Map, n uint32, add func(i uint32, v *T)) error {
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
		for j := range cpus {
			add(keys[i], &values[i*cpus+j])
		}
	}
	return nil
}
