// SPDX-License-Identifier: Apache-2.0

package maglev

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// walker is one backend on its walk through the ring: its permutation of the
// entries is offset, offset+skip, offset+2·skip … modulo the ring's size
// (section 3.4).
type walker struct {
	next, skip uint32
	weight     int // in sixteenths
	// index is the backend's place in the caller's list.
	index uint16
	key   key
}

// key is a backend's ID as numbers: its 16-byte address and its port.
type key struct{ high, low, port uint64 }

// newWalkers returns a walker for each backend with a weight. Their order decides
// who claims first; it comes from weights (falling) and IDs alone.
func newWalkers(seed uint64, size int, backends []Backend) []walker {
	all := make([]walker, 0, len(backends))
	for i, b := range backends {
		if b.Weight == 0 {
			continue
		}
		address := b.ID.Addr().As16()
		w := walker{weight: b.sixteenths(), index: uint16(i), key: key{
			high: binary.BigEndian.Uint64(address[:8]),
			low:  binary.BigEndian.Uint64(address[8:]),
			port: uint64(b.ID.Port()),
		}}
		offset, skip := w.key.hashes(seed)
		w.next = uint32(offset % uint64(size))
		w.skip = uint32(skip%uint64(size-1)) + 1
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b walker) int {
		return cmp.Or(
			cmp.Compare(b.weight, a.weight),
			cmp.Compare(a.key.high, b.key.high),
			cmp.Compare(a.key.low, b.key.low),
			cmp.Compare(a.key.port, b.key.port),
		)
	})
	return all
}

// claim takes the first free entry of the rest of the walk. There must be one.
func (w *walker) claim(free freeSet, size int) uint32 {
	entry, skip, modulus := w.next, w.skip, uint32(size)
	for !free.has(entry) {
		if entry += skip; entry >= modulus {
			entry -= modulus
		}
	}
	free.remove(entry)
	w.next = entry
	return entry
}

// hashes returns the two hashes of section 3.4, for the offset and the skip.
// Balancers of different versions must agree on them.
func (k key) hashes(seed uint64) (offset, skip uint64) {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	h := mix(seed + golden)
	h = mix(h ^ k.high)
	h = mix(h ^ k.low)
	h = mix(h ^ k.port)
	return mix(h + golden), mix(h - golden)
}

// mix is a bijection of 64 bits in which every input bit moves half of the
// output's: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// freeSet has one bit for each entry of a ring that is not claimed yet; a
// bit map stays in a cache where the ring itself wouldn't.
type freeSet []uint64

func newFreeSet(size int) freeSet {
	s := make(freeSet, (size+63)/64)
	for i := range s {
		s[i] = ^uint64(0)
	}
	return s
}

func (s freeSet) has(entry uint32) bool { return s[entry/64]>>(entry%64)&1 != 0 }

func (s freeSet) remove(entry uint32) { s[entry/64] &^= 1 << (entry % 64) }
