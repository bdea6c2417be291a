// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"net/netip"
	"slices"
)

// Request is all that an owner asks for. The same request again changes nothing.
type Request struct {
	Owner Owner
	// Families are those of which an address is asked for, each once (a Service's
	// spec.ipFamilies, of which a single-stack one has one).
	Families []Family
	// Partial says that addresses of some of the families will do (a Service's
	// ipFamilyPolicy PreferDualStack).
	Partial bool
	// Wanted are addresses that have to be it, at most one of each family.
	Wanted []netip.Addr
	// Pools are the names of those that the owner may use, in the order in which they
	// are tried.
	Pools []string
	// Pool, if not empty, is the one of them that it has to be.
	Pool    string
	Ports   []Port
	Sharing Sharing
}

// Result is what an owner holds after a Claim.
type Result struct {
	// Addresses are sorted, IPv4 first; at most one of each family.
	Addresses []Address
	// Lacking says why a family got no address although the claim went well, as it
	// may if the request is Partial; else nil.
	Lacking error
}

// Claim makes an owner hold what it asks for.
//
// What it holds already stays, if the request allows it. An address that it may
// hold no more is taken from it whatever else comes of the claim: because no
// pool that it may use holds it, because it doesn't ask for the family, or because
// those with whom it shares don't allow it any more. What is merely not what it
// wishes for (another address, another pool) stays until the wish comes true.
//
// Without a wanted address an owner with a sharing key gets one that it can share,
// and else the first free one of the first pool that has any; addresses of two
// families come from one pool where one has both.
//
// If the claim can't be met nothing is given, the result is what the owner still
// holds, and the error one of this package's, or two of them wrapped.
func (a *Allocator) Claim(r Request) (Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.reduce(r)
	plan, lacking, err := a.plan(t, r)
	if err != nil {
		return Result{Addresses: t.addresses()}, err
	}
	for _, h := range plan {
		old, held := t.holding(FamilyOf(h.Address))
		if held && old != h {
			a.vacate(t, old.Address)
		}
		if !held || old != h {
			a.occupy(t, h)
		}
	}
	return Result{t.addresses(), lacking}, nil
}

// Keep is Claim for an owner that can't say what it asks for: it goes on holding what
// pools, ports and sharing of the request allow, whatever else that says, and gets
// nothing.
func (a *Allocator) Keep(r Request) Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.Families = []Family{IPv4, IPv6}
	return Result{Addresses: a.reduce(r).addresses()}
}

// reduce makes a tenant of who asks, with what it holds and may go on holding.
func (a *Allocator) reduce(r Request) *tenant {
	t := a.owners[r.Owner]
	if t == nil {
		t = &tenant{owner: r.Owner}
	}
	held := a.vacateAll(t)
	t.ports, t.sharing = slices.Clone(r.Ports), r.Sharing
	usable := a.usable(r.Pools)
	for _, h := range held {
		if !slices.Contains(r.Families, FamilyOf(h.Address)) || a.refusal(t, h.Address) != nil {
			continue
		}
		if h, holds := from(usable, h.Address, h.Pool); holds {
			a.occupy(t, h)
		}
	}
	return t
}

// usable returns those of the named pools that there are.
func (a *Allocator) usable(names []string) []*pool {
	var pools []*pool
	for _, name := range names {
		if p := a.pool(name); p != nil {
			pools = append(pools, p)
		}
	}
	return pools
}
