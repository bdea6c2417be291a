// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
)

// Pool is a named supply of addresses. Pools may overlap: an address is one thing,
// whatever pool it is taken from.
type Pool struct {
	Name   string
	Ranges []Range
	// Automatic says whether addresses are given to those who wish for none in
	// particular. From other pools they have to be asked for, by address or by the
	// pool's name.
	Automatic bool
}

// pool is a Pool whose ranges are sorted and disjoint, with what is assigned of it.
type pool struct {
	Pool
	usage Usage
}

// Count is how much of a pool's addresses of one family is assigned.
type Count struct {
	// Size is the number of addresses, or math.MaxUint64 if there are more.
	Size uint64
	// Assigned is the number of those that have an owner, also if they were taken
	// from another pool that overlaps.
	Assigned uint64
}

// Usage is how much of a pool is assigned.
type Usage struct{ IPv4, IPv6 Count }

// of returns the count of a family.
func (u *Usage) of(f Family) *Count {
	if f == IPv4 {
		return &u.IPv4
	}
	return &u.IPv6
}

// Move is what a change of pools does to one address that is assigned.
type Move struct {
	Owner   Owner
	Address netip.Addr
	// Was is the pool that the address counted as taken from, Now that from which it
	// does. If Now is empty no pool holds it any more: it stays the owner's until its
	// next Claim, which gives it another one or says why not.
	Was, Now string
}

// SetPools replaces all pools, which have distinct names; where order matters and a
// request says none, theirs counts. It returns what becomes of assigned
// addresses, sorted by owner and address. No owner gets or loses an address until
// its next Claim.
func (a *Allocator) SetPools(pools []Pool) []Move {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pools = nil
	for _, p := range pools {
		a.pools = append(a.pools, newPool(p))
	}
	for address := range a.tenants {
		a.count(address, 1)
	}
	var moves []Move
	for _, t := range a.owners {
		for i := range t.held {
			if move, moved := a.move(t, i); moved {
				moves = append(moves, move)
			}
		}
	}
	slices.SortFunc(moves, func(a, b Move) int {
		return cmp.Or(a.Owner.Compare(b.Owner), a.Address.Compare(b.Address))
	})
	return moves
}

// move finds the pool from which a tenant's address counts as taken now.
func (a *Allocator) move(t *tenant, i int) (Move, bool) {
	was := t.held[i]
	now, _ := from(a.pools, was.Address, was.Pool)
	t.held[i] = now
	return Move{t.owner, was.Address, was.Pool, now.Pool}, now != was
}

// Usage returns how much of a pool is assigned, and whether there is such a pool.
func (a *Allocator) Usage(name string) (Usage, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pool(name)
	if p == nil {
		return Usage{}, false
	}
	return p.usage, true
}

func newPool(p Pool) *pool {
	p.Ranges = disjoint(p.Ranges)
	made := &pool{Pool: p}
	for _, r := range p.Ranges {
		size := &made.usage.of(FamilyOf(r.from)).Size
		if more := r.size(); more > math.MaxUint64-*size {
			*size = math.MaxUint64
		} else {
			*size += more
		}
	}
	return made
}

// pool returns the pool of a name; nil if there is none.
func (a *Allocator) pool(name string) *pool {
	for _, p := range a.pools {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// count adds to what is assigned of the pools that hold an address.
func (a *Allocator) count(address netip.Addr, n int) {
	for _, p := range a.pools {
		if p.holds(address) {
			p.usage.of(FamilyOf(address)).Assigned += uint64(n)
		}
	}
}

// holds reports whether an address is one of the pool's.
func (p *pool) holds(a netip.Addr) bool {
	i, begins := slices.BinarySearchFunc(p.Ranges, a, func(r Range, a netip.Addr) int { return r.from.Compare(a) })
	return begins || i > 0 && p.Ranges[i-1].Contains(a)
}

// from returns an address with the pool of those given that it counts as taken
// from: the one named if that holds it, else the first that does.
func from(pools []*pool, address netip.Addr, named string) (taken Address, holds bool) {
	taken.Address = address
	for _, p := range pools {
		if p.holds(address) && (!holds || p.Name == named) {
			taken.Pool, holds = p.Name, true
		}
	}
	return taken, holds
}
