// SPDX-License-Identifier: Apache-2.0

package table

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
)

// Counters are read in several batches, the last of them not full.
func TestReadFlowStats(t *testing.T) {
	const services = 2*readBatch + 3
	tables := openTables(t, Capacity{Services: services, Backends: 64})
	_, err := tables.Numbers.Alloc(services)
	must(t, err)
	cpus := ebpf.MustPossibleCPU()
	want := make([]BalancerFlowStats, services+1)
	for _, number := range []uint32{1, readBatch - 1, readBatch, 2*readBatch - 1, services} {
		must(t, tables.Maps.FlowStats.Put(number, slices.Repeat([]BalancerFlowStats{{Hits: uint64(number)}}, cpus)))
		want[number].Hits = uint64(number) * uint64(cpus)
	}
	got, err := tables.ReadFlowStats()
	must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
