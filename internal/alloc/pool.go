// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Pool is a named set of addresses. Pools may overlap.
type Pool struct {
	Name   string
	Ranges []netipx.IPRange
	// Automatic says whether addresses are assigned to owners that request neither an address
	// nor a pool.
	Automatic bool
	// External says that another system assigns the addresses: an owner has one only as long as
	// it requests that address.
	External bool
}

// pool is a Pool whose ranges are sorted and disjoint.
type pool struct {
	Pool
	addresses *netipx.IPSet
	usage     Usage
	// reserved counts the reserved addresses, has the assigned ones by family and the namespace of owners.
	reserved map[Family]uint64
	has      map[Family]map[string]uint64
}

// Count is the usage of a pool's addresses of one family.
type Count struct {
	// Size is the number of addresses, or math.MaxUint64 if there are more.
	Size uint64
	// Assigned is the number of addresses with owners, including those counted in an
	// overlapping pool.
	Assigned uint64
}

// Usage is the usage of a pool.
type Usage struct{ IPv4, IPv6 Count }

// of returns the count of a family.
func (u *Usage) of(f Family) *Count {
	if f == IPv4 {
		return &u.IPv4
	}
	return &u.IPv6
}

// SetPools replaces all pools, which have distinct names, in order of preference. No owner
// gets or loses an address until its next Claim.
func (a *Allocator) SetPools(pools []Pool) {
	a.pools = nil
	for _, p := range pools {
		a.pools = append(a.pools, newPool(p))
	}
	for address, holders := range a.holders {
		a.pools.count(address, holders[0].owner.Namespace, 1)
	}
	for address := range a.reserved.byAddress {
		a.pools.countReserved(address, 1)
	}
	for _, t := range a.owners {
		for i, h := range t.held {
			t.held[i], _ = a.pools.find(h.Address, h.Pool)
		}
	}
}

// Usage returns how much of a pool is assigned; zero for an unknown pool.
func (a *Allocator) Usage(name string) Usage {
	if p := a.pools.get(name); p != nil {
		return p.usage
	}
	return Usage{}
}

func newPool(p Pool) *pool {
	var b netipx.IPSetBuilder
	for _, r := range p.Ranges {
		b.AddRange(r)
	}
	set, _ := b.IPSet() // without invalid ranges
	p.Ranges = set.Ranges()
	made := &pool{Pool: p, addresses: set, reserved: map[Family]uint64{}, has: map[Family]map[string]uint64{IPv4: {}, IPv6: {}}}
	for _, r := range p.Ranges {
		total := &made.usage.of(FamilyOf(r.From())).Size
		if more := size(r); more > math.MaxUint64-*total {
			*total = math.MaxUint64
		} else {
			*total += more
		}
	}
	return made
}

// PoolOf returns the name of the first pool that contains an address; "" for none.
func (a *Allocator) PoolOf(address netip.Addr) string {
	taken, _ := a.pools.find(address, "")
	return taken.Pool
}

// poolList has pools in order of preference.
type poolList []*pool

// get returns the pool of that name, or nil.
func (all poolList) get(name string) *pool {
	if at := slices.IndexFunc(all, func(p *pool) bool { return p.Name == name }); at >= 0 {
		return all[at]
	}
	return nil
}

// existing returns the named pools that exist.
func (all poolList) existing(names []string) (pools poolList) {
	for _, name := range names {
		if p := all.get(name); p != nil {
			pools = append(pools, p)
		}
	}
	return pools
}

// wished returns the pools that a request may use.
func (all poolList) wished(r Request) (poolList, error) {
	if r.Pool == "" {
		return all.existing(r.Pools), nil
	}
	p := all.get(r.Pool)
	switch {
	case p == nil:
		return nil, errorf(BadPool, "pool %s doesn't exist", r.Pool)
	case !slices.Contains(r.Pools, r.Pool):
		return nil, errorf(BadPool, "pool %s: its selectors don't match", r.Pool)
	}
	return poolList{p}, nil
}

// assignable returns the pools that are not external.
func (all poolList) assignable() poolList {
	return slices.DeleteFunc(slices.Clone(all), func(p *pool) bool { return p.External })
}

// find returns an address with the pool that it is counted in: the named one if that
// contains it, else the first that does.
func (all poolList) find(address netip.Addr, named string) (taken Address, holds bool) {
	taken.Address = address
	for _, p := range all {
		if p.addresses.Contains(address) && (!holds || p.Name == named) {
			taken.Pool, holds = p.Name, true
		}
	}
	return taken, holds
}

// count adds n to the assigned addresses of all pools that contain an address of owners in a namespace.
func (all poolList) count(address netip.Addr, namespace string, n int) {
	f := FamilyOf(address)
	for _, p := range all {
		if p.addresses.Contains(address) {
			p.usage.of(f).Assigned += uint64(n)
			if p.has[f][namespace] += uint64(n); p.has[f][namespace] == 0 {
				delete(p.has[f], namespace)
			}
		}
	}
}

// countReserved adds n to the reserved addresses of all pools that contain an address.
func (all poolList) countReserved(address netip.Addr, n int) {
	for _, p := range all {
		if p.addresses.Contains(address) {
			p.reserved[FamilyOf(address)] += uint64(n)
		}
	}
}

// perFree is how many addresses of a pool a namespace may have for each one that is free (dynamic
// thresholds of Choudhury and Hahne, 1998): a single namespace gets almost all, and another one still gets
// some.
const perFree = 16

// scarce returns why a namespace gets no further address of a family; nil if it may.
func (p *pool) scarce(namespace string, f Family) *Error {
	c, has := p.usage.of(f), p.has[f][namespace]
	free := c.Size - min(c.Assigned+p.reserved[f], c.Size)
	if p.External || free == 0 || has/perFree < free {
		return nil
	}
	return errorf(Scarce, "pool %s: namespace %s has %d of %d %s addresses, and %d are free: for another one it would need fewer than %d for each free one",
		p.Name, namespace, has, c.Size, f, free, perFree)
}
