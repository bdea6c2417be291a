// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"math/bits"
	"net/netip"
)

// occupied is the set of addresses of one family that have owners: a tree with a
// level for each byte of an address. It costs what is in it, however large the
// pools are, and finds the next address that is not in it without walking over
// those that are.
type occupied struct {
	// full has a bit for each value of this level's byte: there is no free address
	// below it. On the last level that is, the address itself is in the set.
	full  [4]uint64
	below map[byte]*occupied // nil on the last level; never an empty one
}

// add puts an address, as bytes, into the set, and reports whether all are in it
// now.
func (o *occupied) add(address []byte) (full bool) {
	b := address[0]
	if len(address) > 1 {
		if o.below == nil {
			o.below = map[byte]*occupied{}
		}
		next := o.below[b]
		if next == nil {
			next = &occupied{}
			o.below[b] = next
		}
		if !next.add(address[1:]) {
			return false
		}
	}
	o.full[b/64] |= 1 << (b % 64)
	return o.firstFree(0) > 255
}

// remove takes an address that is in the set out of it, and reports whether none
// is in it now.
func (o *occupied) remove(address []byte) (empty bool) {
	b := address[0]
	o.full[b/64] &^= 1 << (b % 64)
	if len(address) > 1 && o.below[b].remove(address[1:]) {
		delete(o.below, b)
	}
	return len(o.below) == 0 && o.full == [4]uint64{}
}

// firstFree returns the first value at or after from, below or at which something
// is free; 256 if there is none.
func (o *occupied) firstFree(from int) int {
	for ; from < 256; from = (from/64 + 1) * 64 {
		if free := ^o.full[from/64] >> (from % 64); free != 0 {
			return from + bits.TrailingZeros64(free)
		}
	}
	return 256
}

// next makes address, in place, the first one at or after it that is not in the
// set, and reports whether there is one.
func (o *occupied) next(address []byte) bool {
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
func (o *occupied) freeIn(r Range) (netip.Addr, bool) {
	bytes := r.from.AsSlice()
	if !o.next(bytes) {
		return netip.Addr{}, false
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a, r.Contains(a)
}
