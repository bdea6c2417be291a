// SPDX-License-Identifier: Apache-2.0

package table

import "testing"

// Backends that leave alike share an egress, until the last of them is gone.
func TestSharedEgress(t *testing.T) {
	tables := openTables(t, Capacity{Services: 16, Backends: 64})
	egress := func(ifindex uint32) BalancerEgress { return BalancerEgress{Source: [6]byte{2}, Ifindex: ifindex} }
	stage := func(egresses ...uint32) Extent {
		t.Helper()
		run, err := tables.BackendEntries.Alloc(uint32(len(egresses)))
		must(t, err)
		for i, ifindex := range egresses {
			b := Backend{BalancerBackend: BalancerBackend{Generation: 7}, Remote: [16]byte{byte(ifindex)}}
			if ifindex > 0 {
				b.BalancerEgress = egress(ifindex)
			}
			must(t, tables.WriteBackend(run.Base+uint32(i), b, BalancerBackendDetail{Port: 80}))
		}
		return run
	}
	numbers := func(run Extent) (all []uint16) {
		for i := range run.Size {
			b, err := read[BalancerBackend](tables.backends, run.Base+i)
			must(t, err)
			all = append(all, b.Egress)
		}
		return all
	}
	first, second := stage(1, 2, 1, 0), stage(2)
	if got := numbers(first); got[0] == got[1] || got[0] != got[2] || got[3] != 0 || numbers(second)[0] != got[1] {
		t.Errorf("egresses %v and %v", got, numbers(second))
	}
	b, detail, err := tables.ReadBackend(second.Base)
	if err != nil || b.BalancerEgress != egress(2) || b.Remote[0] != 2 || b.Generation != 7 || detail.Port != 80 {
		t.Errorf("%+v, %+v, error %v", b, detail, err)
	}
	// The reader is a second backend of the run, as an adopting agent's.
	for _, gone := range []Extent{first, second} {
		tables.BackendEntries.Release(gone)
	}
	if n := len(tables.BackendEntries.uses); n != 1 {
		t.Errorf("%d egresses are in use, want 1", n)
	}
	third := stage(0, 3, 4)
	if numbers(third)[1] != 1 {
		t.Errorf("egresses %v, want the free number 1 again", numbers(third))
	}
}

// A run that couldn't be filled is released as far as it was.
func TestReleaseOfUnfilledRun(t *testing.T) {
	tables := openTables(t, Capacity{Services: 16, Backends: 64})
	for range 3 {
		run, err := tables.BackendEntries.Alloc(2)
		must(t, err)
		must(t, tables.WriteBackend(run.Base, Backend{BalancerEgress: BalancerEgress{Ifindex: 1}}, BalancerBackendDetail{}))
		tables.BackendEntries.Release(run)
		if n := len(tables.BackendEntries.uses); n != 0 {
			t.Fatalf("%d egresses are in use, want 0", n)
		}
	}
}
