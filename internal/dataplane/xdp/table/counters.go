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

// counters returns the number of counters for that many backends: a service's counters lie in
// a row, which is longer than it has slots so that it seldom moves.
func counters(backends int) int { return backends + backends/4 }

// AllocCounters returns a row of counters for that many slots, or for some more.
func AllocCounters(t *Tables, slots int) (Extent, error) {
	if row, err := t.Counters.Alloc(uint32(counters(slots))); err == nil {
		return row, nil
	}
	return t.Counters.Alloc(uint32(slots))
}

// CounterReader reads single counters, each element of their tables once as long as they are
// read in order.
type CounterReader struct {
	t       *Tables
	traffic []BalancerTrafficChunk // by processor; nil before the first
	flows   []BalancerNewFlowsChunk
	chunk   uint32
}

// CounterReader returns a reader for counters, which reads each element as it is at first.
func (t *Tables) CounterReader() *CounterReader { return &CounterReader{t: t} }

// Read returns a counter's traffic since the tables were made.
func (r *CounterReader) Read(index uint32) (sum dataplane.Traffic, err error) {
	if chunk := index / trafficChunk; r.traffic == nil || r.chunk != chunk {
		r.traffic, r.flows = nil, nil
		if err := r.t.Maps.BackendStats.Lookup(chunk, &r.traffic); err != nil {
			return sum, fmt.Errorf("traffic counter: %w", err)
		}
		if err := r.t.Maps.NewFlows.Lookup(chunk, &r.flows); err != nil {
			return sum, fmt.Errorf("counter of new flows: %w", err)
		}
		r.chunk = chunk
	}
	for i := range r.traffic {
		sum.Packets += r.traffic[i].Entry[index%trafficChunk].Packets
		sum.Bytes += r.traffic[i].Entry[index%trafficChunk].Bytes
		sum.NewFlows += r.flows[i].Entry[index%trafficChunk]
	}
	return sum, nil
}

// ReadTraffic returns the traffic of at least the counters in use since the tables
// were made.
func (t *Tables) ReadTraffic() ([]dataplane.Traffic, error) {
	n := t.Counters.used(t.Maps.BackendStats.MaxEntries() * trafficChunk)
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

// NewFlowsBefore returns the value that WriteNewFlowsBefore has stored.
func (t *Tables) NewFlowsBefore(index uint32) (uint64, error) {
	return read[uint64](t.before, index)
}

// WriteNewFlowsBefore stores the value of the counter of new flows when its present
// backend got it.
func WriteNewFlowsBefore(t *Tables, index uint32, flows uint64) error {
	return write(t.before, uintptr(index)*unsafe.Sizeof(flows), flows)
}

// ReadFlowStats returns the counts of flows by the services' numbers, up to the
// largest in use.
func (t *Tables) ReadFlowStats() ([]BalancerFlowStats, error) {
	n := t.Numbers.used(uint32(t.Capacity.Services) + 1)
	sums := make([]BalancerFlowStats, n)
	err := readPerCPU(t.Maps.FlowStats, n, func(i uint32, v *BalancerFlowStats) { sums[i].add(v) })
	return sums, err
}

func (f *BalancerFlowStats) add(v *BalancerFlowStats) {
	f.Hits += v.Hits
	f.Misses += v.Misses
	f.Inserts += v.Inserts
	f.Unrecorded += v.Unrecorded
}

// readBatch is the number of elements that one system call reads.
const readBatch = 256

// readPerCPU calls add with each processor's value of the first n elements.
func readPerCPU[T any](m *ebpf.Map, n uint32, add func(i uint32, v *T)) error {
	cpus := ebpf.MustPossibleCPU()
	var cursor ebpf.MapBatchCursor
	keys := make([]uint32, min(n, readBatch))
	values := make([]T, len(keys)*cpus)
	for n > 0 {
		keys = keys[:min(n, readBatch)]
		got, err := m.BatchLookup(&cursor, keys, values[:len(keys)*cpus], nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return fmt.Errorf("counters %s: %w", m, err)
		}
		for i, key := range keys[:got] {
			for j := range cpus {
				add(key, &values[i*cpus+j])
			}
		}
		if last {
			break
		}
		n -= uint32(got)
	}
	return nil
}
