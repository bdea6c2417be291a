// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Holding is what an object's status says that it has, and what its
// specification says about ports and sharing.
type Holding struct {
	Owner Owner
	// Created is when the object was created (metadata.creationTimestamp).
	Created   time.Time
	Addresses []netip.Addr
	Ports     []Port
	Sharing   Sharing
}

// Conflict is an address that was not adopted: a TakenError or a FamilyError.
type Conflict struct {
	Owner   Owner
	Address netip.Addr
	Err     error
}

// Adopt takes over what was assigned by an earlier process, after SetPools and
// before the first Claim. If an address can't be all of its owners', those that
// were created first keep it, by name if at the same time. An address that no
// pool holds is adopted too, so that nobody else gets it before its owner has got
// another one. Owners that hold addresses already are left alone. Conflicts come
// in the order in which they are decided.
func (a *Allocator) Adopt(holdings []Holding) []Conflict {
	a.mu.Lock()
	defer a.mu.Unlock()
	var conflicts []Conflict
	for _, h := range slices.SortedFunc(slices.Values(holdings), func(a, b Holding) int {
		return cmp.Or(a.Created.Compare(b.Created), a.Owner.Compare(b.Owner))
	}) {
		if a.owners[h.Owner] == nil {
			conflicts = append(conflicts, a.adopt(h)...)
		}
	}
	return conflicts
}

func (a *Allocator) adopt(h Holding) (conflicts []Conflict) {
	t := &tenant{owner: h.Owner, ports: slices.Clone(h.Ports), sharing: h.Sharing}
	for _, address := range h.Addresses {
		address = address.Unmap().WithZone("")
		held, second := t.holding(FamilyOf(address))
		if !address.IsValid() || second && held.Address == address {
			continue
		}
		err := a.refusal(t, address)
		if second {
			err = &FamilyError{address, true}
		}
		if err != nil {
			conflicts = append(conflicts, Conflict{h.Owner, address, err})
			continue
		}
		taken, _ := from(a.pools, address, "")
		a.occupy(t, taken)
	}
	return conflicts
}
