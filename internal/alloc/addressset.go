// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"math/bits"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// addressSet is a set of addresses of one family: a tree with a level for each byte. Its size
// depends only on the number of its addresses, and it finds the next free address without
// iterating over used ones.
type addressSet struct {
	// full has a bit for each value of this level's byte, set if no address below it is free.
	// On the last level the address itself is in the set.
	full  [4]uint64
	below map[byte]*addressSet // nil on the last level; never an empty one
}

// add adds an address, given as bytes, and reports whether the set is full.
func (o *addressSet) add(address []byte) (full bool) {
	b := address[0]
	if len(address) > 1 {
		if o.below == nil {
			o.below = map[byte]*addressSet{}
		}
		next := o.below[b]
		if next == nil {
			next = &addressSet{}
			o.below[b] = next
		}
		if !next.add(address[1:]) {
			return false
		}
	}
	o.full[b/64] |= 1 << (b % 64)
	return o.firstFree(0) > 255
}

// remove removes an address of the set, and reports whether the set is empty.
func (o *addressSet) remove(address []byte) (empty bool) {
	b := address[0]
	o.full[b/64] &^= 1 << (b % 64)
	if len(address) > 1 && o.below[b].remove(address[1:]) {
		delete(o.below, b)
	}
	return len(o.below) == 0 && o.full == [4]uint64{}
}

// firstFree returns the first byte value from the given one that has free addresses; 256 for
// none.
func (o *addressSet) firstFree(from int) int {
	for ; from < 256; from = (from/64 + 1) * 64 {
		if free := ^o.full[from/64] >> (from % 64); free != 0 {
			return from + bits.TrailingZeros64(free)
		}
	}
	return 256
}

// next advances address, in place, to the first free one at or after it, and reports whether
// there is one.
func (o *addressSet) next(address []byte) bool {
	for b := o.firstFree(int(address[0])); b < 256; b = o.firstFree(b + 1) {
		if b != int(address[0]) {
			address[0] = byte(b)
			clear(address[1:])
		}
		below := o.below[byte(b)]
		if below == nil || below.next(address[1:]) {
			return true
		}
	}
	return false
}

// freeIn returns the first address of a range that is not in the set.
func (o *addressSet) freeIn(r netipx.IPRange) (netip.Addr, bool) {
	bytes := r.From().AsSlice()
	if !o.next(bytes) {
		return netip.Addr{}, false
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a, r.Contains(a)
}

// addressIndex has the addresses of each key, sorted.
type addressIndex[K comparable] map[K][]netip.Addr

func (x addressIndex[K]) add(key K, address netip.Addr) {
	at, _ := slices.BinarySearchFunc(x[key], address, netip.Addr.Compare)
	x[key] = slices.Insert(x[key], at, address)
}

// remove removes an address of a key, if the key has it.
func (x addressIndex[K]) remove(key K, address netip.Addr) {
	if at, found := slices.BinarySearchFunc(x[key], address, netip.Addr.Compare); found {
		x[key] = slices.Delete(x[key], at, at+1)
	}
	if len(x[key]) == 0 {
		delete(x, key)
	}
}
