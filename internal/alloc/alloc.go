// SPDX-License-Identifier: Apache-2.0

// Package alloc assigns addresses from pools to Services of type LoadBalancer and to
// LoadBalancers (Allocator), nodes to groups of load-balancer nodes (PlaceNodes), and
// groups to addresses (PlaceUnits), and decides how many nodes a group needs for its load
// (SizeGroup). The controller calls it and publishes the results.
//
// The package is pure and keeps everything in memory: after a restart Allocator.Adopt
// takes over the addresses that are assigned. An owner keeps its addresses as long
// as its request allows them.
//
// PlaceNodes and PlaceUnits have no state (the LBN groups of the Kakao paper: three nodes
// each, VIPs sharded over groups). The previous decision is part of their input and
// determines most of the result, because moves cost connections. The same input gives the
// same result, and a result as input doesn't change.
package alloc

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.io/fairlead/internal/lb"
)

// Owner identifies an object that has addresses.
type Owner struct {
	// Kind is the object's kind.
	Kind, Namespace, Name string
}

// String returns for example "Service web/shop".
func (o Owner) String() string { return o.Kind + " " + o.Namespace + "/" + o.Name }

// Compare orders owners by namespace, name and kind; it returns -1, 0 or +1.
func (o Owner) Compare(other Owner) int {
	return cmp.Or(
		cmp.Compare(o.Namespace, other.Namespace),
		cmp.Compare(o.Name, other.Name),
		cmp.Compare(o.Kind, other.Kind),
	)
}

// Port is a port that an owner uses. Owners that share an address have no common ports.
type Port struct {
	Number   uint16
	Protocol lb.Protocol
}

// String returns for example "443/tcp".
func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

func (p Port) compare(o Port) int {
	return cmp.Or(cmp.Compare(p.Number, o.Number), cmp.Compare(p.Protocol, o.Protocol))
}

// sortedPorts returns a sorted copy.
func sortedPorts(ports []Port) []Port { return slices.SortedFunc(slices.Values(ports), Port.compare) }

// Address is an assigned address. Pool is the pool that it is counted in, "" if no pool
// contains it any more.
type Address struct {
	Address netip.Addr
	Pool    string
}

// Allocator has the assigned addresses. It is not safe for concurrent use.
type Allocator struct {
	ownership
	pools poolList
	// reserved are the reservations of addresses without holder.
	reserved reservations
	// used has the assigned and reserved addresses of each family.
	used map[Family]*addressSet
}

// New returns an allocator without pools.
func New() *Allocator {
	return &Allocator{
		ownership: ownership{owners: map[Owner]*holder{}, holders: map[netip.Addr][]*holder{}, shared: addressIndex[sharingKey]{}},
		reserved:  reservations{byAddress: map[netip.Addr]Reservation{}, byNamespace: addressIndex[string]{}},
		used:      map[Family]*addressSet{IPv4: {}, IPv6: {}},
	}
}

// Release frees an owner's addresses, if any.
func (a *Allocator) Release(owner Owner) {
	if t := a.owners[owner]; t != nil {
		a.unassignAll(t)
	}
}

// assign adds an address, which the holder may have and doesn't have yet.
func (a *Allocator) assign(t *holder, h Address) {
	if first := a.ownership.add(t, h); first {
		a.Unreserve(h.Address)
		a.used[FamilyOf(h.Address)].add(h.Address.AsSlice())
		a.pools.count(h.Address, t.owner.Namespace, 1)
	}
}

// unassign removes an address from its holder.
func (a *Allocator) unassign(t *holder, address netip.Addr) {
	if last := a.ownership.remove(t, address); last {
		a.used[FamilyOf(address)].remove(address.AsSlice())
		a.pools.count(address, t.owner.Namespace, -1)
	}
}

// unassignAll removes all addresses of a holder, and returns them.
func (a *Allocator) unassignAll(t *holder) []Address {
	held := t.addresses()
	for _, h := range held {
		a.unassign(t, h.Address)
	}
	return held
}

// Networks has an allocator for each network: networks have address spaces of their own.
type Networks struct {
	// Untagged is the allocator of the untagged network.
	Untagged *Allocator
	// Tagged are the allocators of networks without pools: owners get the addresses that they
	// request, and no others. Requests have AnyAddress in their Pools.
	Tagged map[lb.Segment]*Allocator
}

// AnyAddress is the only pool of a tagged network.
const AnyAddress = "everything"

// NewNetworks returns networks without pools.
func NewNetworks() *Networks {
	return &Networks{New(), map[lb.Segment]*Allocator{}}
}

// In returns the allocator of a network.
func (n *Networks) In(s lb.Segment) *Allocator {
	if !s.Tagged() {
		return n.Untagged
	}
	if n.Tagged[s] == nil {
		n.Tagged[s] = New()
		four, _ := ParseRange("0.0.0.0/0")
		six, _ := ParseRange("::/0")
		n.Tagged[s].SetPools([]Pool{{Name: AnyAddress, Ranges: []netipx.IPRange{four, six}}})
	}
	return n.Tagged[s]
}

// Prune removes the allocators of tagged networks without owners.
func (n *Networks) Prune() {
	maps.DeleteFunc(n.Tagged, func(_ lb.Segment, a *Allocator) bool { return len(a.owners) == 0 })
}
