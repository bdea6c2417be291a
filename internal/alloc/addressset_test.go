// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"go4.org/netipx"
)

// The tree finds the same addresses as a walk, in both families, at byte
// boundaries, when it is full and when it is empty again.
func TestAddressSetMatchesWalk(t *testing.T) {
	for _, text := range []string{"10.0.0.0-10.0.2.255", "255.255.254.250-255.255.255.255", "fd00::fe00-fd00::1:1ff", "::-::2ff"} {
		t.Run(text, func(t *testing.T) {
			r := mustRange(t, text)
			set, all, inSet := &addressSet{}, addresses(r), map[netip.Addr]bool{}
			random := rand.New(rand.NewPCG(1, 1))
			for step := range 20_000 {
				a := all[random.IntN(len(all))]
				// Half of the time it fills up, half of the time it empties.
				if fill := step/2_000%2 == 0; inSet[a] != fill && (fill || random.IntN(8) > 0) {
					change(set, inSet, a)
				}
				if step%16 == 0 {
					from := netipx.IPRangeFrom(all[random.IntN(len(all))], r.To())
					agree(t, set, inSet, from)
				}
			}
			for a := range inSet {
				change(set, inSet, a)
			}
			if len(set.below) > 0 || set.full != [4]uint64{} {
				t.Errorf("an empty set keeps %v", set)
			}
		})
	}
}

// A range without a free address is found to be so, down to the last one.
func TestAddressSetFull(t *testing.T) {
	r := mustRange(t, "fd00::1:0/112")
	set, inSet := &addressSet{}, map[netip.Addr]bool{}
	for range 1 << 16 {
		a, found := set.freeIn(r)
		if !found || inSet[a] {
			t.Fatalf("after %d addresses: %s, %t", len(inSet), a, found)
		}
		change(set, inSet, a)
	}
	if a, found := set.freeIn(r); found {
		t.Errorf("%s is free in a full range", a)
	}
	next := mustRange(t, "fd00::1:ffff-fd00::2:0")
	if a, _ := set.freeIn(next); a != next.To() {
		t.Errorf("behind the full range %s is free, want %s", a, next.To())
	}
}

func change(set *addressSet, inSet map[netip.Addr]bool, a netip.Addr) {
	if inSet[a] {
		set.remove(a.AsSlice())
		delete(inSet, a)
		return
	}
	set.add(a.AsSlice())
	inSet[a] = true
}

func agree(t *testing.T, set *addressSet, inSet map[netip.Addr]bool, r netipx.IPRange) {
	t.Helper()
	want, found := netip.Addr{}, false
	for _, a := range addresses(r) {
		if !inSet[a] {
			want, found = a, true
			break
		}
	}
	if got, free := set.freeIn(r); free != found || free && got != want {
		t.Fatalf("%s: %s is free (%t), want %s (%t)", r, got, free, want, found)
	}
}

// addresses lists a range.
func addresses(r netipx.IPRange) (all []netip.Addr) {
	for a := r.From(); r.Contains(a); a = a.Next() {
		all = append(all, a)
	}
	return all
}

func mustRange(t testing.TB, text string) netipx.IPRange {
	t.Helper()
	r, err := ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
