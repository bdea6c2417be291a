// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/alloc"
)

// foreignService is a Service that another controller serves. No other owner gets the addresses
// in its status.
type foreignService struct {
	adopted
	// reserved are the pseudo-owners of the addresses.
	reserved []alloc.Owner
}

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
	if !l.untagged.CanAdopt(holding) {
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

// reserveForeign has no other owner get the addresses in the status of a Service.
func (l *allocations) reserveForeign(o adopted) {
	l.releaseForeign(o.Owner)
	f := &foreignService{adopted: o}
	for _, a := range o.Addresses {
		pseudo := alloc.Owner{Kind: fmt.Sprintf("other controller's %s with %s", o.Owner.Kind, a), Namespace: o.Owner.Namespace, Name: o.Owner.Name}
		f.reserved = append(f.reserved, pseudo)
		l.untagged.Reserve(alloc.Holding{Owner: pseudo, Addresses: []netip.Addr{a}, Ports: o.Ports})
	}
	l.foreign[o.Owner] = f
}

func (l *allocations) releaseForeign(owner alloc.Owner) {
	f := l.foreign[owner]
	if f == nil {
		return
	}
	for _, pseudo := range f.reserved {
		l.untagged.Release(pseudo)
	}
	delete(l.foreign, owner)
	l.supplyChanged = true
}
