// SPDX-License-Identifier: Apache-2.0

package table

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane"
)

// trafficChunk is the number of counters in one element of their table.
const trafficChunk = uint32(len(BalancerTrafficChunk{}.Entry))

// trafficChunks is the number of elements that hold n counters.
func trafficChunks(n uint32) uint32 { return (n + trafficChunk - 1) / trafficChunk }

// Counted is what a counter has counted since the tables were made.
func (t *Tables) Counted(index uint32) (sum BalancerTraffic, err error) {
	var values []BalancerTrafficChunk
	if err := t.Maps.BackendStats.Lookup(index/trafficChunk, &values); err != nil {
		return sum, fmt.Errorf("traffic counter: %w", err)
	}
	for i := range values {
		sum.Packets += values[i].Entry[index%trafficChunk].Packets
		sum.Bytes += values[i].Entry[index%trafficChunk].Bytes
	}
	return sum, nil
}

// ReadTraffic returns what at least the counters in use have counted since the
// tables were made.
func (t *Tables) ReadTraffic() ([]dataplane.Traffic, error) {
	n := t.Counters.used(uint32(t.Capacity.Backends))
	sums := make([]dataplane.Traffic, trafficChunks(n)*trafficChunk)
	err := readPerCPU(t.Maps.BackendStats, trafficChunks(n), func(i uint32, v *BalancerTrafficChunk) {
		for j := range v.Entry {
			sum := &sums[i*trafficChunk+uint32(j)]
			*sum = sum.Add(dataplane.Traffic{Packets: v.Entry[j].Packets, Bytes: v.Entry[j].Bytes})
		}
	})
	if err != nil {
		return nil, err
	}
	return sums, readPerCPU(t.Maps.NewFlows, trafficChunks(n), func(i uint32, v *BalancerNewFlowsChunk) {
		for j, flows := range v.Entry {
			sums[i*trafficChunk+uint32(j)].NewFlows += flows
		}
	})
}

// NewFlowsBefore is what the counter had counted when beginNewFlows was last called.
func (t *Tables) NewFlowsBefore(index uint32) (uint64, error) {
	return read[uint64](t.before, index)
}

// BeginNewFlows notes, also for a later agent, what a counter of new flows has
// counted since the tables were made: the backend that has it from now on begins
// there.
func (t *Tables) BeginNewFlows(index uint32) (counted uint64, err error) {
	var values []BalancerNewFlowsChunk
	if err := t.Maps.NewFlows.Lookup(index/trafficChunk, &values); err != nil {
		return 0, fmt.Errorf("counter of new flows: %w", err)
	}
	for i := range values {
		counted += values[i].Entry[index%trafficChunk]
	}
	return counted, write(t.before, uintptr(index)*unsafe.Sizeof(counted), counted)
}

// ReadFlowStats returns the counts of flows by the services' numbers, up to the
// largest in use.
func (t *Tables) ReadFlowStats() ([]BalancerFlowStats, error) {
	n := t.Numbers.used(uint32(t.Capacity.Services) + 1)
	sums := make([]BalancerFlowStats, n)
	err := readPerCPU(t.Maps.FlowStats, n, func(i uint32, v *BalancerFlowStats) {
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
