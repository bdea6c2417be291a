// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Request is an owner's request. Repeating a request changes nothing.
type Request struct {
	Owner Owner
	// Families are the requested families, each once (spec.ipFamilies of a Service).
	Families []Family
	// Partial says that addresses of some of the families are sufficient (ipFamilyPolicy
	// PreferDualStack of a Service).
	Partial bool
	// Wanted are the requested addresses, at most one of each family; without one of a
	// family it is chosen.
	Wanted []netip.Addr
	// Pools are the names of the pools that the owner may use, in order of preference.
	Pools []string
	// Pool, if not empty, is the requested pool.
	Pool    string
	Ports   []Port
	Sharing Sharing
}

// Result is the result of a Claim.
type Result struct {
	// Addresses are sorted, IPv4 first; at most one of each family.
	Addresses []Address
	// Missing says why a family got no address although the claim succeeded, which is possible
	// if the request is Partial; else nil.
	Missing error
}

// Claim assigns the requested addresses to an owner.
//
// Addresses that the owner has stay if the request allows them. Addresses that it may not
// have any more are released, whether or not the claim succeeds: because no pool that it
// may use contains them, because it doesn't request the family, because it can't share them
// any more, or because they are of an external pool and not requested. Addresses that are merely not the requested ones (another address,
// another pool) stay until the claim succeeds.
//
// Without a requested address an owner with a sharing key gets one that it can share, else
// the first free one of the first pool with any; addresses of two families come from one
// pool if possible.
//
// If the claim fails nothing is assigned, the result has the remaining addresses, and the
// error is an *Error.
func (a *Allocator) Claim(r Request) (Result, error) {
	t := a.revalidate(r)
	a.releaseExternal(t, r.Wanted)
	plan, missing, err := a.plan(t, r)
	if err != nil {
		return Result{Addresses: t.addresses()}, err
	}
	for _, h := range plan {
		old, held := t.address(FamilyOf(h.Address))
		if held && old != h {
			a.unassign(t, old.Address)
		}
		if !held || old != h {
			a.assign(t, h)
		}
	}
	return Result{t.addresses(), missing}, nil
}

// releaseExternal releases the addresses of external pools that a holder doesn't request.
func (a *Allocator) releaseExternal(t *holder, wanted []netip.Addr) {
	for _, h := range t.addresses() {
		if p := a.pools.get(h.Pool); p != nil && p.External && !slices.Contains(wanted, h.Address) {
			a.unassign(t, h.Address)
		}
	}
}

// Keep is Claim for an owner whose request is invalid: it keeps the addresses that pools,
// ports and sharing of the request allow, and gets no others.
func (a *Allocator) Keep(r Request) Result {
	r.Families = []Family{IPv4, IPv6}
	return Result{Addresses: a.revalidate(r).addresses()}
}

// revalidate releases the addresses that a request doesn't allow, and returns the holder.
func (a *Allocator) revalidate(r Request) *holder {
	t := a.owners[r.Owner]
	if t == nil {
		t = &holder{owner: r.Owner}
	}
	held := a.unassignAll(t)
	t.ports, t.sharing = sortedPorts(r.Ports), sharingKey{r.Owner.Namespace, r.Sharing}
	usable := a.pools.existing(r.Pools)
	for _, h := range held {
		if !slices.Contains(r.Families, FamilyOf(h.Address)) || a.checkSharing(t, h.Address) != nil {
			continue
		}
		if h, holds := usable.find(h.Address, h.Pool); holds {
			a.assign(t, h)
		}
	}
	return t
}

// Holding has the addresses of an object's status and specification.
type Holding struct {
	Owner Owner
	// Created is metadata.creationTimestamp.
	Created time.Time
	// Assigned says that an earlier process has recorded the owner.
	Assigned  bool
	Addresses []netip.Addr
	Ports     []Port
	Sharing   Sharing
}

// Conflict is an address that was not adopted: another owner has it, or it is the second
// one of its family.
type Conflict struct {
	Owner   Owner
	Address netip.Addr
	Err     error
}

// Adopt takes over the addresses that an earlier process assigned, after SetPools and
// before the first Claim. If owners can't share an address one with Assigned
// keeps it, else the oldest one, by name if they are of equal age. Addresses without pool are adopted too, so that no other owner
// gets them before their owner has others. Owners that already have addresses are skipped.
// Conflicts are in the order in which they are decided.
func (a *Allocator) Adopt(holdings []Holding) []Conflict {
	var conflicts []Conflict
	for _, h := range slices.SortedFunc(slices.Values(holdings), func(a, b Holding) int {
		switch {
		case a.Assigned && !b.Assigned:
			return -1
		case b.Assigned && !a.Assigned:
			return 1
		}
		return cmp.Or(a.Created.Compare(b.Created), a.Owner.Compare(b.Owner))
	}) {
		if a.owners[h.Owner] == nil {
			conflicts = append(conflicts, a.adopt(h.holder(), h.Addresses)...)
		}
	}
	return conflicts
}

// Contain reports whether the named pools that aren't external contain all addresses, and there
// is at least one.
func (a *Allocator) Contain(pools []string, addresses []netip.Addr) bool {
	usable := a.pools.existing(pools).assignable()
	return len(addresses) > 0 && !slices.ContainsFunc(addresses, func(address netip.Addr) bool {
		_, holds := usable.find(address, "")
		return !holds
	})
}

// CanAdopt returns the first conflict that Adopt of a holding would have, nil for none.
func (a *Allocator) CanAdopt(h Holding) error {
	t := h.holder()
	families := map[Family]bool{}
	for _, address := range h.Addresses {
		if families[FamilyOf(address)] {
			return secondOfFamily(address)
		}
		if err := a.checkSharing(t, address); err != nil {
			return err
		}
		if r, reserved := a.reserved.byAddress[address]; reserved && r.Err.Reason == InUse {
			return r.Err
		}
		families[FamilyOf(address)] = true
	}
	return nil
}

func (h *Holding) holder() *holder {
	return &holder{owner: h.Owner, ports: sortedPorts(h.Ports), sharing: sharingKey{h.Owner.Namespace, h.Sharing}}
}

func (a *Allocator) adopt(t *holder, addresses []netip.Addr) (conflicts []Conflict) {
	for _, address := range addresses {
		address = address.Unmap().WithZone("")
		held, second := t.address(FamilyOf(address))
		if !address.IsValid() || second && held.Address == address {
			continue
		}
		err := a.checkSharing(t, address)
		if second {
			err = secondOfFamily(address)
		}
		if err != nil {
			conflicts = append(conflicts, Conflict{t.owner, address, err})
			continue
		}
		taken, _ := a.pools.find(address, "")
		a.assign(t, taken)
	}
	return conflicts
}
