// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"cmp"
	"net/netip"
	"slices"
)

// plan chooses an address for each requested family: the requested one, else the current one,
// else a free or shared one.
func (a *Allocator) plan(t *holder, r Request) (plan []Address, missing, err error) {
	pools, err := a.pools.wished(r)
	if err != nil {
		return nil, nil, err
	}
	if plan, err = a.wanted(t, r, pools); err != nil {
		return nil, nil, err
	}
	pools = pools.assignable()
	var open []Family
	for _, f := range r.Families {
		if slices.ContainsFunc(plan, func(h Address) bool { return FamilyOf(h.Address) == f }) {
			continue
		}
		h, held := t.address(f)
		if h, holds := pools.find(h.Address, h.Pool); held && holds {
			plan = append(plan, h)
			continue
		}
		open = append(open, f)
	}
	if r.Pool == "" {
		pools = slices.DeleteFunc(pools, func(p *pool) bool { return !p.Automatic })
	}
	found, missing := a.choose(t, open, pools, plan)
	if missing != nil && (!r.Partial || len(plan)+len(found) == 0) {
		return nil, nil, missing
	}
	return append(plan, found...), missing, nil
}

// wanted checks the requested addresses.
func (a *Allocator) wanted(t *holder, r Request, pools poolList) (plan []Address, err error) {
	for _, address := range r.Wanted {
		f := FamilyOf(address)
		switch {
		case slices.ContainsFunc(plan, func(h Address) bool { return FamilyOf(h.Address) == f }):
			return nil, secondOfFamily(address)
		case !slices.Contains(r.Families, f):
			return nil, errorf(BadFamily, "address %s: %s is not a requested IP family", address, f)
		}
		held, _ := t.address(f)
		h, holds := pools.find(address, held.Pool)
		switch {
		case !holds && len(pools) == 0:
			return nil, errorf(NotInPool, "address %s: no usable pool", address)
		case !holds:
			return nil, errorf(NotInPool, "address %s: not in %s", address, named(pools))
		}
		if err := a.checkSharing(t, address); err != nil {
			return nil, err
		}
		r, reserved := a.reserved.byAddress[address]
		if reserved && !r.admits(t.owner) {
			return nil, r.Err
		}
		if !reserved && len(a.holders[address]) == 0 && held.Pool != h.Pool {
			if why := a.pools.get(h.Pool).scarce(t.owner.Namespace, f); why != nil {
				return nil, why
			}
		}
		plan = append(plan, h)
	}
	return plan, nil
}

// choose assigns addresses of some families from pools, in their order, for an owner that
// also gets the addresses of plan. The error has the families without address.
func (a *Allocator) choose(t *holder, families []Family, pools poolList, planned []Address) ([]Address, error) {
	var chosen []Address
	var open []Family
	var failed *Error
	for _, f := range families {
		h, found := a.shareable(t, f, pools)
		if !found {
			open = append(open, f)
			continue
		}
		chosen = append(chosen, h)
	}
	pools = a.preferred(t, pools, open, slices.Concat(planned, chosen))
	for _, f := range open {
		h, none := a.free(t, f, pools)
		if none == nil {
			chosen = append(chosen, h)
		}
		failed = failed.and(none)
	}
	if failed != nil {
		return chosen, failed
	}
	return chosen, nil
}

// preferred moves to the front the pool that gives addresses of both families: the planned
// address's pool, or the first with free addresses of both.
func (a *Allocator) preferred(t *holder, pools poolList, families []Family, planned []Address) poolList {
	if len(families)+len(planned) < 2 {
		return pools
	}
	at := slices.IndexFunc(pools, func(p *pool) bool {
		if len(planned) > 0 {
			return p.Name == planned[0].Pool
		}
		return !slices.ContainsFunc(families, func(f Family) bool {
			_, none := a.free(t, f, poolList{p})
			return none != nil
		})
	})
	if at <= 0 {
		return pools
	}
	return slices.Insert(slices.Delete(slices.Clone(pools), at, at+1), 0, pools[at])
}

// free returns the first free address of a family for a holder, in the order of pools: one that is
// reserved for the holder before others.
func (a *Allocator) free(t *holder, f Family, pools poolList) (Address, *Error) {
	var full poolList
	var scarce *Error
	own, retained := a.reserved.of(t.owner, f)
	for _, p := range pools {
		if i := slices.IndexFunc(own, p.addresses.Contains); i >= 0 {
			return Address{own[i], p.Name}, nil
		}
	}
	for _, p := range pools {
		why := p.scarce(t.owner.Namespace, f)
		scarce = cmp.Or(scarce, why)
		for _, r := range p.Ranges {
			if FamilyOf(r.From()) != f {
				continue
			}
			address, found := a.used[f].freeIn(r)
			found = found && why == nil
			if i, _ := slices.BinarySearchFunc(retained, r.From(), netip.Addr.Compare); i < len(retained) && r.Contains(retained[i]) && (!found || retained[i].Less(address)) {
				address, found = retained[i], true
			}
			if found {
				return Address{address, p.Name}, nil
			}
		}
		if p.usage.of(f).Size > 0 {
			full = append(full, p)
		}
	}
	switch {
	case scarce != nil:
		return Address{}, scarce
	case len(full) > 0:
		return Address{}, errorf(Exhausted, "%s: no free %s address", named(full), f)
	case len(pools) > 0:
		return Address{}, errorf(NoPool, "%s: no %s addresses", named(pools), f)
	}
	return Address{}, errorf(NoPool, "no usable pool assigns %s addresses automatically", f)
}
