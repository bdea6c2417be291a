// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"net/netip"

	"go4.org/netipx"
)

// Retain has only owners of a namespace get an address, until Unretain or until one has it.
// It does nothing, and returns false, if the address has an owner.
func (a *Allocator) Retain(address netip.Addr, namespace string) bool {
	if len(a.holders[address]) > 0 {
		return false
	}
	a.retained[address] = namespace
	a.used[FamilyOf(address)].add(address.AsSlice())
	return true
}

// Unretain ends the retention of an address, if any.
func (a *Allocator) Unretain(address netip.Addr) {
	if _, found := a.retained[address]; found {
		delete(a.retained, address)
		a.used[FamilyOf(address)].remove(address.AsSlice())
	}
}

// RetainedFor returns the namespace for which an address is retained; "" for none.
func (a *Allocator) RetainedFor(address netip.Addr) string { return a.retained[address] }

// retainedIn returns the first address of a range that is retained for a namespace.
func (a *Allocator) retainedIn(r netipx.IPRange, namespace string) (first netip.Addr, found bool) {
	for address, owner := range a.retained {
		if owner == namespace && r.Contains(address) && (!found || address.Less(first)) {
			first, found = address, true
		}
	}
	return first, found
}
