// SPDX-License-Identifier: Apache-2.0

package table

import (
	"math/rand/v2"
	"testing"
)

// checkPlaces reports places that no key leads to, and marks of windows without a record.
func checkPlaces(t *testing.T, s *Sessions) (entries int) {
	t.Helper()
	near := make([]uint64, len(s.places))
	for i := range s.places {
		key := s.places[i].Key
		if key == placeFree {
			continue
		}
		first := s.first(key)
		if key == placeBusy || i < first || i >= first+placesMore {
			t.Errorf("place %d has key %#x, whose first place is %d", i, key, first)
			continue
		}
		near[first] |= 1 << (i - first)
		entries++
	}
	for i := range s.places {
		if s.places[i].Near != near[i] {
			t.Errorf("place %d has mask %#x, want %#x", i, s.places[i].Near, near[i])
		}
	}
	return entries
}

// Entries are found where programs look for them, whatever was deleted before. In a table
// that has as many as it is for, less than one of a thousand has no place.
func TestSessions(t *testing.T) {
	const most = 1 << 14
	s := openTables(t, Capacity{Sessions: most / 2}).Sessions
	want := map[uint64]uint32{}
	var keys []uint64
	refused := 0
	for n := range uint32(4 * most) {
		if len(keys) == most {
			i := rand.IntN(len(keys))
			s.Delete(keys[i])
			delete(want, keys[i])
			keys[i] = keys[len(keys)-1]
			keys = keys[:len(keys)-1]
		}
		key := rand.Uint64() >> (n % 40) // of few or many bits, as keys of IPv4 clients are
		if err := s.Put(key, &BalancerNatSession{Backend: n}); err != nil {
			refused++
			continue
		}
		if _, ok := want[key]; !ok {
			keys = append(keys, key)
		}
		want[key] = n
	}
	if refused > 4*most/1000 {
		t.Errorf("%d of %d entries have no place", refused, 4*most)
	}
	for key, n := range want {
		if at := s.find(key); at < 0 || s.places[at].Session.Backend != n {
			t.Errorf("entry of %#x: place %d, want one with %d", key, at, n)
		}
	}
	s.Each(func(key uint64, e *BalancerNatSession) {
		if want[key] != e.Backend {
			t.Errorf("entry of %#x: %d, want %d", key, e.Backend, want[key])
		}
	})
	if n := checkPlaces(t, s); n != len(want) {
		t.Errorf("%d entries, want %d", n, len(want))
	}
	for key := range want {
		s.Delete(key)
	}
	if n := checkPlaces(t, s); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// Keys in progression, like a client's ports, find places also with secrets for
// which their sums meet in four places of the table. A table with as many entries as it is
// for evicts less than one of a thousand.
func TestPlacesAreSpread(t *testing.T) {
	const most = 1 << 16
	for name, key := range map[string]func(n uint64) uint64{
		"ports":     func(n uint64) uint64 { return 10<<56 | n },
		"addresses": func(n uint64) uint64 { return 10<<56 | n<<32 },
		"networks":  func(n uint64) uint64 { return 10<<32 | n<<40 },
	} {
		s := openTables(t, Capacity{Sessions: most / 2}).Sessions
		s.secrets = [2]uint64{1<<62 | 1<<36, 1<<62 | 1<<37}
		refused := 0
		for n := range uint64(most) {
			if s.Put(key(n), &BalancerNatSession{}) != nil {
				refused++
			}
		}
		if refused > most/1000 {
			t.Errorf("%s: %d of %d entries have no place", name, refused, most)
		}
	}
}

// A key leads to the same place as before in a table that is opened again, and to none
// in one that is closed.
func TestClosedSessions(t *testing.T) {
	s := openTables(t, Capacity{Sessions: 64}).Sessions
	must(t, s.Put(7, &BalancerNatSession{}))
	places := s.places
	s.places = nil
	s.Delete(7)
	s.Each(func(uint64, *BalancerNatSession) { t.Error("a closed table has an entry") })
	if s.Put(7, &BalancerNatSession{}) == nil {
		t.Error("a closed table is used")
	}
	s.places = places
}

// The parts of a table have each entry once, and those that are over are deleted.
func TestPartsOfSessions(t *testing.T) {
	s := openTables(t, Capacity{Sessions: 1 << 18}).Sessions
	const entries, parts = 1000, 7
	if n := s.Parts(); n < 2 {
		t.Errorf("a table of %d places is swept in %d part", len(s.places), n)
	}
	for n := range uint32(entries) {
		must(t, s.Put(rand.Uint64(), &BalancerNatSession{Backend: n}))
	}
	seen := map[uint32]int{}
	for i := range parts {
		s.EachIn(Part{i, parts}, func(e *BalancerNatSession) { seen[e.Backend]++ })
		s.DeleteIn(Part{i, parts}, func(e *BalancerNatSession) bool { return e.Backend%2 == 0 })
	}
	for n, times := range seen {
		if times != 1 {
			t.Errorf("entry %d is in %d parts", n, times)
		}
	}
	if n := checkPlaces(t, s); len(seen) != entries || n != entries/2 {
		t.Errorf("%d entries seen, %d left, want %d and %d", len(seen), n, entries, entries/2)
	}
}
