// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/netip"
	"slices"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// foreignService is a Service that another controller serves. No other owner gets the addresses
// in its status.
type foreignService struct{ adopted }

type foreignServices map[alloc.Owner]*foreignService

// AdoptForeign takes over the addresses in the status of a claimable Service that Fairlead hasn't
// written, if pools that the Service may use contain them, no other owner has them, and no other
// controller is seen. Otherwise no other owner gets them.
func (l *allocations) AdoptForeign(o adopted) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.serveWaiting()         // former addresses may be free now
	if l.records[o.Owner] != nil { // adopted before, and not written yet
		if slices.Equal(l.allocation(l.records[o.Owner]).Addresses, slices.SortedFunc(slices.Values(o.Addresses), netip.Addr.Compare)) {
			return true
		}
		l.untagged.Release(o.Owner)
		delete(l.records, o.Owner)
		l.supplyChanged = true
	}
	l.reserveForeign(o)
	if _, serves := l.otherController(); serves || !l.inPools(o) {
		return false
	}
	l.releaseForeign(o.Owner)
	holding := alloc.Holding{Owner: o.Owner, Created: o.Created, Addresses: o.Addresses, Ports: o.Ports, Sharing: o.Sharing}
	if !l.admitted(o) || !l.untagged.CanAdopt(holding) {
		l.reserveForeign(o)
		return false
	}
	l.records[o.Owner] = &record{request: o.addressRequest}
	l.untagged.Adopt([]alloc.Holding{holding})
	return true
}

// ForgetForeign records that no other controller serves a Service, or that it doesn't exist. It
// reports whether one did, and whether no other controller is seen any more since.
func (l *allocations) ForgetForeign(owner alloc.Owner) (known, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.foreign[owner] == nil {
		return false, false
	}
	l.releaseForeign(owner)
	l.serveWaiting()
	_, serves := l.otherController()
	return true, !serves
}

// OtherController returns a Service without class that another controller serves, if there is
// one whose addresses aren't in pools.
func (l *allocations) OtherController() (owner alloc.Owner, serves bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.otherController()
}

func (l *allocations) otherController() (owner alloc.Owner, serves bool) {
	for owner, f := range l.foreign {
		if f.Class == "" && !l.inPools(f.adopted) {
			return owner, true
		}
	}
	return alloc.Owner{}, false
}

// inPools reports whether a Service is claimable and pools that it may use contain all its
// addresses.
func (l *allocations) inPools(o adopted) bool {
	return o.Claimable && l.untagged.Contain(l.allocRequest(o.addressRequest).Pools, o.Addresses)
}

// admitted reports whether the objects of a Service's addresses allow it as an owner.
func (l *allocations) admitted(o adopted) bool {
	return !slices.ContainsFunc(o.Addresses, func(a netip.Addr) bool {
		object := l.objects.byName[v1alpha1.AssignedAddressName(a, nil)]
		return object != nil && (len(blocking(object, entryOf(o.addressRequest))) > 0 ||
			object.Spec.Retained != nil && object.Spec.Retained.Namespace != o.Owner.Namespace)
	})
}

// reserveForeign has no other owner get the addresses in the status of a Service.
func (l *allocations) reserveForeign(o adopted) {
	l.releaseForeign(o.Owner)
	l.foreign[o.Owner] = &foreignService{o}
	for _, a := range o.Addresses {
		l.refresh(a, lb.Segment{})
	}
}

// at returns a Service with an address in its status.
func (all foreignServices) at(a netip.Addr) (owner alloc.Owner, found bool) {
	for owner, f := range all {
		if slices.Contains(f.Addresses, a) {
			return owner, true
		}
	}
	return alloc.Owner{}, false
}

func (l *allocations) releaseForeign(owner alloc.Owner) {
	f := l.foreign[owner]
	if f == nil {
		return
	}
	delete(l.foreign, owner)
	for _, a := range f.Addresses {
		l.refresh(a, lb.Segment{})
	}
	l.supplyChanged = true
}
