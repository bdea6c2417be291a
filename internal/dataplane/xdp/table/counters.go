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

// CounterReader reads counters that count nothing at present, each element of their
// tables once as long as they are read in order.
type CounterReader struct {
	t       *Tables
	traffic []BalancerTrafficChunk // by processor; nil before the first
	flows   []BalancerNewFlowsChunk
	chunk   uint32
}

// CounterReader returns a reader for counters that are now free.
func (t *Tables) CounterReader() *CounterReader { return &CounterReader{t: t} }

// Begin returns what a counter has counted since the tables were made, and notes for
// later agents where its new flows begin: the backend that has it from now on begins
// there.
func (r *CounterReader) Begin(index uint32) (sum BalancerTraffic, flows uint64, err error) {
	if chunk := index / trafficChunk; r.traffic == nil || r.chunk != chunk {
		r.traffic, r.flows = nil, nil
		if err := r.t.Maps.BackendStats.Lookup(chunk, &r.traffic); err != nil {
			return sum, 0, fmt.Errorf("traffic counter: %w", err)
		}
		if err := r.t.Maps.NewFlows.Lookup(chunk, &r.flows); err != nil {
			return sum, 0, fmt.Errorf("counter of new flows: %w", err)
		}
		r.chunk = chunk
	}
	for i := range r.traffic {
		sum.Packets += r.traffic[i].Entry[index%trafficChunk].Packets
		sum.Bytes += r.traffic[i].Entry[index%trafficChunk].Bytes
		flows += r.flows[i].Entry[index%trafficChunk]
	}
	return sum, flows, write(r.t.before, uintptr(index)*unsafe.Sizeof(flows), flows)
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

// NewFlowsBefore is what the counter had counted at the last CounterReader.Begin.
func (t *Tables) NewFlowsBefore(index uint32) (uint64, error) {
	return read[uint64](t.before, index)
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
		sums[i].Unrecorded += v.Unrecorded
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
