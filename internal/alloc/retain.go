// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"net/netip"
	"slices"
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

// retainedOf returns the addresses of a family that are retained for a namespace, sorted.
func (a *Allocator) retainedOf(namespace string, f Family) (all []netip.Addr) {
	for address, owner := range a.retained {
		if owner == namespace && FamilyOf(address) == f {
			all = append(all, address)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}
