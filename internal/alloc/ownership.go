// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"net/netip"
	"slices"
)

// holder is an owner with its addresses, at most one of each family, and its last request.
type holder struct {
	owner   Owner
	ports   []Port // sorted
	sharing sharingKey
	held    []Address
}

func (t *holder) addresses() []Address {
	return slices.SortedFunc(slices.Values(t.held), func(a, b Address) int { return a.Address.Compare(b.Address) })
}

// address returns the address of a family that a holder has.
func (t *holder) address(f Family) (Address, bool) {
	i := slices.IndexFunc(t.held, func(h Address) bool { return FamilyOf(h.Address) == f })
	if i < 0 {
		return Address{}, false
	}
	return t.held[i], true
}

// ownership has the owners of addresses. An address has several if they share it.
type ownership struct {
	// owners are the holders of at least one address, holders the same by address.
	owners  map[Owner]*holder
	holders map[netip.Addr][]*holder
	// shared has the shareable addresses of each namespace and key.
	shared addressIndex[sharingKey]
}

// Of returns the addresses of an owner, IPv4 first.
func (o *ownership) Of(owner Owner) []Address {
	if t := o.owners[owner]; t != nil {
		return t.addresses()
	}
	return nil
}

// Holders returns the owners of an address, in no order.
func (o *ownership) Holders(address netip.Addr) (owners []Owner) {
	for _, t := range o.holders[address] {
		owners = append(owners, t.owner)
	}
	return owners
}

// add adds an address to its holder, and reports whether it is the first one of the address. Only assign
// calls it, which counts the address too.
func (o *ownership) add(t *holder, h Address) (first bool) {
	o.owners[t.owner] = t
	t.held = append(t.held, h)
	o.holders[h.Address] = append(o.holders[h.Address], t)
	first = len(o.holders[h.Address]) == 1
	if first && t.sharing.Key != "" {
		o.shared.add(t.sharing.anyMode(), h.Address)
	}
	return first
}

// remove removes an address from its holder, and reports whether it was the last one of the address.
// Only unassign calls it.
func (o *ownership) remove(t *holder, address netip.Addr) (last bool) {
	t.held = slices.DeleteFunc(t.held, func(h Address) bool { return h.Address == address })
	if len(t.held) == 0 {
		delete(o.owners, t.owner)
	}
	others := slices.DeleteFunc(o.holders[address], func(other *holder) bool { return other == t })
	if o.holders[address] = others; len(others) > 0 {
		return false
	}
	delete(o.holders, address)
	o.shared.remove(t.sharing.anyMode(), address)
	return true
}
