// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// foreignServices are the Services whose statuses other controllers have written. No other owner gets
// the addresses there.
type foreignServices map[alloc.Owner]*adopted

// AdoptForeign takes over the addresses in the status of a claimable Service that Fairlead hasn't
// written, if pools that the Service may use contain them, no other owner has them, and no other
// controller is seen. Otherwise no other owner gets them; why is nil unless the Service waits.
func (l *allocations) AdoptForeign(o adopted) (ours bool, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.serveWaiting()         // former addresses may be free now
	if l.records[o.Owner] != nil { // adopted before, and not written yet
		if slices.Equal(l.supply.held(l.records[o.Owner].request), slices.SortedFunc(slices.Values(o.Addresses), netip.Addr.Compare)) {
			return true, nil
		}
		l.supply.Untagged.Release(o.Owner)
		delete(l.records, o.Owner)
		l.supplyChanged = true
	}
	l.setForeign(o.Owner, &o)
	if !o.Claimable || l.foreign.showOther(l.supply.Untagged) {
		return false, nil
	}
	holding := alloc.Holding{Owner: o.Owner, Created: o.Created, Addresses: o.Addresses, Ports: o.Ports, Sharing: o.Sharing}
	if why = cmp.Or(o.Refused, l.admit(o, holding)); why != nil {
		return false, why
	}
	l.setForeign(o.Owner, nil)
	l.records[o.Owner] = &record{request: o.addressRequest}
	l.supply.Untagged.Adopt([]alloc.Holding{holding})
	return true, nil
}

// ForgetForeign records that no other controller serves a Service, or that it doesn't exist, and
// reports whether one did.
func (l *allocations) ForgetForeign(owner alloc.Owner) (known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.serveWaiting()
	_, known = l.foreign[owner]
	l.setForeign(owner, nil)
	return known
}

// SetLeft records whether a Service waits though it isn't ours: for an address, or for its own to be
// taken over.
func (l *allocations) SetLeft(owner alloc.Owner, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left[owner] = waits; !waits {
		delete(l.left, owner)
	}
}

// OtherController returns a Service that shows another controller for Services without class, if there
// is one: the first one of a namespace, or else of all.
func (l *allocations) OtherController(namespace string) (first alloc.Owner, serves bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for owner, f := range l.foreign {
		if !f.isEvidence(l.supply.Untagged) {
			continue
		}
		near, nearest := owner.Namespace == namespace, first.Namespace == namespace
		if !serves || near && !nearest || near == nearest && owner.Compare(first) < 0 {
			first, serves = owner, true
		}
	}
	return first, serves
}

// isEvidence reports whether a foreign Service shows another controller for Services without class: by
// its status alone, which authors of Services can't write, and by all pools, whatever it may use.
func (o *adopted) isEvidence(pools *alloc.Allocator) bool {
	return o.Class == "" && (o.Named || slices.ContainsFunc(o.Addresses, func(a netip.Addr) bool { return pools.PoolOf(a) == "" }))
}

// showOther reports whether the Services show another controller for Services without class.
func (all foreignServices) showOther(pools *alloc.Allocator) bool {
	for _, f := range all {
		if f.isEvidence(pools) {
			return true
		}
	}
	return false
}

// admit returns an error if pools that a Service may use don't contain all its addresses, other owners
// can't share them, or their objects don't allow it as an owner.
func (l *allocations) admit(o adopted, holding alloc.Holding) error {
	if !l.supply.Untagged.Contain(l.supply.request(o.addressRequest).Pools, o.Addresses) {
		return refusal(alloc.NotInPool, "addresses %s: not all in pools that the Service may use", list(o.Addresses))
	}
	if err := l.supply.Untagged.CanAdopt(holding); err != nil {
		return err
	}
	for _, a := range o.Addresses {
		object := l.objects.get(v1alpha1.AssignedAddressName(a, nil))
		if object == nil {
			continue
		}
		if others := blocking(object, entryOf(o.addressRequest)); len(others) > 0 {
			return refusal(alloc.Taken, "address %s: assigned to %s, which can't share it", a, others[0])
		}
		if to := object.Spec.Retained; to != nil && to.Namespace != o.Owner.Namespace {
			return retainedError(a, to, l.supply.retentionOf(object))
		}
	}
	return nil
}

// setForeign replaces a Service that another controller serves, nil for none: no other owner gets the
// addresses in its status.
func (l *allocations) setForeign(owner alloc.Owner, now *adopted) {
	former := l.foreign[owner]
	if l.foreign[owner] = now; now == nil {
		delete(l.foreign, owner)
	}
	if former != nil && now != nil && former.Named == now.Named && slices.Equal(former.Addresses, now.Addresses) {
		return
	}
	for _, o := range []*adopted{former, now} {
		if o != nil {
			for _, a := range o.Addresses {
				l.refresh(a, lb.Segment{})
			}
		}
	}
	l.supplyChanged = l.supplyChanged || former != nil
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
