// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"fmt"
	"slices"
)

// plan finds an address for each family that a request asks for: the wanted one,
// else the one that the tenant holds, else one that is assigned automatically.
func (a *Allocator) plan(t *tenant, r Request) (plan []Address, lacking, err error) {
	pools, err := a.wished(r)
	if err != nil {
		return nil, nil, err
	}
	if plan, err = a.wanted(t, r, pools); err != nil {
		return nil, nil, err
	}
	var open []Family
	for _, f := range r.Families {
		if slices.ContainsFunc(plan, func(h Address) bool { return FamilyOf(h.Address) == f }) {
			continue
		}
		h, held := t.holding(f)
		if h, holds := from(pools, h.Address, h.Pool); held && holds {
			plan = append(plan, h)
			continue
		}
		open = append(open, f)
	}
	if r.Pool == "" {
		pools = slices.DeleteFunc(pools, func(p *pool) bool { return !p.Automatic })
	}
	found, lacking := a.choose(t, open, pools, plan)
	if lacking != nil && (!r.Partial || len(plan)+len(found) == 0) {
		return nil, nil, lacking
	}
	return append(plan, found...), lacking, nil
}

// wished returns the pools that a request allows and wishes for.
func (a *Allocator) wished(r Request) ([]*pool, error) {
	if r.Pool == "" {
		return a.usable(r.Pools), nil
	}
	p := a.pool(r.Pool)
	if p == nil || !slices.Contains(r.Pools, r.Pool) {
		return nil, &PoolError{r.Pool, p == nil}
	}
	return []*pool{p}, nil
}

// wanted checks the addresses that a request names.
func (a *Allocator) wanted(t *tenant, r Request, pools []*pool) (plan []Address, err error) {
	for _, address := range r.Wanted {
		f := FamilyOf(address)
		second := slices.ContainsFunc(plan, func(h Address) bool { return FamilyOf(h.Address) == f })
		if second || !slices.Contains(r.Families, f) {
			return nil, &FamilyError{address, second}
		}
		held, _ := t.holding(f)
		h, holds := from(pools, address, held.Pool)
		if !holds {
			return nil, &NotInPoolError{address, names(pools)}
		}
		if err := a.refusal(t, address); err != nil {
			return nil, err
		}
		plan = append(plan, h)
	}
	return plan, nil
}

// choose finds addresses of some families automatically, in the order of pools, for
// an owner that gets others beside. The error says why it didn't for some.
func (a *Allocator) choose(t *tenant, families []Family, pools []*pool, beside []Address) (chosen []Address, err error) {
	var open []Family
	for _, f := range families {
		h, found := a.company(t, f, pools)
		if !found {
			open = append(open, f)
			continue
		}
		chosen = append(chosen, h)
	}
	pools = a.preferring(pools, open, slices.Concat(beside, chosen))
	for _, f := range open {
		h, none := a.free(f, pools)
		switch {
		case none == nil:
			chosen = append(chosen, h)
		case err == nil:
			err = none
		default:
			err = fmt.Errorf("%w; %w", err, none)
		}
	}
	return chosen, err
}

// preferring puts the pool in front from which addresses of two families would be
// one pool's: that of the address beside, or the first that has both.
func (a *Allocator) preferring(pools []*pool, families []Family, beside []Address) []*pool {
	if len(families)+len(beside) < 2 {
		return pools
	}
	at := slices.IndexFunc(pools, func(p *pool) bool {
		if len(beside) > 0 {
			return p.Name == beside[0].Pool
		}
		return !slices.ContainsFunc(families, func(f Family) bool {
			_, none := a.free(f, []*pool{p})
			return none != nil
		})
	})
	if at <= 0 {
		return pools
	}
	return slices.Insert(slices.Delete(slices.Clone(pools), at, at+1), 0, pools[at])
}

// free returns the first free address of a family, in the order of pools.
func (a *Allocator) free(f Family, pools []*pool) (Address, error) {
	var full []string
	for _, p := range pools {
		for _, r := range p.Ranges {
			if FamilyOf(r.from) != f {
				continue
			}
			if address, found := a.occupied(f).freeIn(r); found {
				return Address{address, p.Name}, nil
			}
		}
		if p.usage.of(f).Size > 0 {
			full = append(full, p.Name)
		}
	}
	if len(full) == 0 {
		return Address{}, &NoPoolError{names(pools), f}
	}
	return Address{}, &ExhaustedError{full, f}
}

// names returns the names of pools.
func names(pools []*pool) []string {
	var names []string
	for _, p := range pools {
		names = append(names, p.Name)
	}
	return names
}
