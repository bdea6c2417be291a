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
	exits, err := p.program.exits.Read()
	if err != nil {
		return dataplane.Stats{}, err
	}
	quiet := p.grace.newest() // before reading: counters of what left earlier no longer grow
	traffic, err := p.program.readTraffic(p.trafficUsed())
	if err != nil {
		return dataplane.Stats{}, err
	}
	stats := dataplane.Stats{Exits: exits, Services: make(map[lb.VIP]dataplane.ServiceStats, len(p.services))}
	for vip, s := range p.services {
		if err := p.settle(s, quiet, traffic); err != nil {
			return dataplane.Stats{}, fmt.Errorf("vip %s: %w", vip, err)
		}
		stats.Services[vip] = s.stats(traffic)
	}
	return stats, nil
}

// stats sums up a service: its present backends and those that have left.
func (s *service) stats(traffic []dataplane.Traffic) dataplane.ServiceStats {
	st := dataplane.ServiceStats{Traffic: s.gone, Backends: make(map[lb.BackendID]dataplane.Traffic, len(s.traffic))}
	for _, l := range s.leaving {
		st.Traffic = st.Add(traffic[l.traffic.base])
	}
	for id, t := range s.traffic {
		st.Backends[id] = traffic[t.base]
		st.Traffic = st.Add(traffic[t.base])
	}
	return st
}

// settle adds the traffic of backends that left, and to which no packet is on
// its way any more, to what the service remembers, and frees their counters.
func (p *Plane) settle(s *service, quiet ticket, traffic []dataplane.Traffic) error {
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
	return write(p.program.services, offset, balancerTraffic{Packets: gone.Packets, Bytes: gone.Bytes})
}

// trafficUsed is one more than the largest index of a counter in use.
func (p *Plane) trafficUsed() uint32 {
	if n := len(p.traffic.free); n > 0 && p.traffic.free[n-1].end() == maxBackends {
		return p.traffic.free[n-1].base
	}
	return maxBackends
}

// clearTraffic sets a counter to zero on all processors.
func (t *tables) clearTraffic(index uint32) error {
	return t.maps.BackendStats.Put(index, make([]balancerTraffic, ebpf.MustPossibleCPU()))
}

// readTraffic returns the first n counters.
func (t *tables) readTraffic(n uint32) ([]dataplane.Traffic, error) {
	cpus := ebpf.MustPossibleCPU()
	sums := make([]dataplane.Traffic, n)
	if n == 0 {
		return sums, nil
	}
	var cursor ebpf.MapBatchCursor
	keys := make([]uint32, n)
	values := make([]balancerTraffic, int(n)*cpus)
	got, err := t.maps.BackendStats.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("traffic counters: %w", err)
	}
	for i := range got {
		sum := &sums[keys[i]]
		for _, v := range values[i*cpus : (i+1)*cpus] {
			*sum = sum.Add(dataplane.Traffic{Packets: v.Packets, Bytes: v.Bytes})
		}
	}
	return sums, nil
}
