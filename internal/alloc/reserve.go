// SPDX-License-Identifier: Apache-2.0

package alloc

import "net/netip"

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

// reservations are the reservations of addresses.
type reservations struct {
	byAddress map[netip.Addr]Reservation
	// byNamespace has the addresses by the namespace of the owner for which they are reserved.
	byNamespace addressIndex[string]
}

func (s *reservations) add(address netip.Addr, r Reservation) {
	s.byAddress[address] = r
	if r.For.Namespace != "" {
		s.byNamespace.add(r.For.Namespace, address)
	}
}

// remove ends the reservation of an address, and reports whether there was one.
func (s *reservations) remove(address netip.Addr) (found bool) {
	r, found := s.byAddress[address]
	delete(s.byAddress, address)
	s.byNamespace.remove(r.For.Namespace, address)
	return found
}

// of returns the addresses of a family that an owner may get: its own ones, and others of its
// namespace, each sorted.
func (s *reservations) of(o Owner, f Family) (own, others []netip.Addr) {
	for _, address := range s.byNamespace[o.Namespace] {
		switch r := s.byAddress[address]; {
		case FamilyOf(address) != f:
		case r.For == o:
			own = append(own, address)
		case r.Namespace:
			others = append(others, address)
		}
	}
	return own, others
}

// Reserve replaces the reservation of an address, which ends with Unreserve or when an owner gets
// the address. It does nothing, and returns false, if the address has an owner.
func (a *Allocator) Reserve(address netip.Addr, r Reservation) bool {
	if len(a.holders[address]) > 0 {
		return false
	}
	a.Unreserve(address)
	a.reserved.add(address, r)
	a.used[FamilyOf(address)].add(address.AsSlice())
	a.pools.countReserved(address, 1)
	return true
}

// Unreserve ends the reservation of an address, if any.
func (a *Allocator) Unreserve(address netip.Addr) {
	if a.reserved.remove(address) {
		a.used[FamilyOf(address)].remove(address.AsSlice())
		a.pools.countReserved(address, -1)
	}
}

// Reserved returns the reservation of an address.
func (a *Allocator) Reserved(address netip.Addr) (r Reservation, found bool) {
	r, found = a.reserved.byAddress[address]
	return r, found
}
