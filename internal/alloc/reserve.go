// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"net/netip"
	"slices"
)

// Reservation says which owners may get an address without holder.
type Reservation struct {
	// For is the owner for which the address is reserved: it gets the address before others. No
	// owner gets it if this is the zero Owner.
	For Owner
	// Namespace says that all owners of its namespace may get the address.
	Namespace bool
	// Err is the error for others that request the address.
	Err *Error
}

func (r Reservation) admits(o Owner) bool {
	return r.For == o || r.Namespace && r.For.Namespace == o.Namespace
}

// Reserve replaces the reservation of an address, which ends with Unreserve or when an owner gets
// the address. It does nothing, and returns false, if the address has an owner.
func (a *Allocator) Reserve(address netip.Addr, r Reservation) bool {
	if len(a.holders[address]) > 0 {
		return false
	}
	a.Unreserve(address)
	a.reserved[address] = r
	if namespace := r.For.Namespace; namespace != "" {
		at, _ := slices.BinarySearchFunc(a.reservedIn[namespace], address, netip.Addr.Compare)
		a.reservedIn[namespace] = slices.Insert(a.reservedIn[namespace], at, address)
	}
	a.used[FamilyOf(address)].add(address.AsSlice())
	a.countReserved(address, 1)
	return true
}

// Unreserve ends the reservation of an address, if any.
func (a *Allocator) Unreserve(address netip.Addr) {
	r, found := a.reserved[address]
	if !found {
		return
	}
	delete(a.reserved, address)
	namespace := r.For.Namespace
	if at, found := slices.BinarySearchFunc(a.reservedIn[namespace], address, netip.Addr.Compare); found {
		a.reservedIn[namespace] = slices.Delete(a.reservedIn[namespace], at, at+1)
	}
	if len(a.reservedIn[namespace]) == 0 {
		delete(a.reservedIn, namespace)
	}
	a.used[FamilyOf(address)].remove(address.AsSlice())
	a.countReserved(address, -1)
}

// Reserved returns the reservation of an address.
func (a *Allocator) Reserved(address netip.Addr) (r Reservation, found bool) {
	r, found = a.reserved[address]
	return r, found
}

// reservedFor returns the addresses of a family that are reserved and that an owner may get: its own
// addresses, and others of its namespace, each sorted.
func (a *Allocator) reservedFor(o Owner, f Family) (own, others []netip.Addr) {
	for _, address := range a.reservedIn[o.Namespace] {
		switch r := a.reserved[address]; {
		case FamilyOf(address) != f:
		case r.For == o:
			own = append(own, address)
		case r.Namespace:
			others = append(others, address)
		}
	}
	return own, others
}
