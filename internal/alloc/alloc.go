// SPDX-License-Identifier: Apache-2.0

// Package alloc assigns addresses out of pools to those who ask for one: the
// services of type LoadBalancer, and load balancers for machines outside the
// cluster.
//
// It stands before the story of ARCHITECTURE.md: a service whose address is not
// given has none until the controller has asked here, and published what came of
// it. The package keeps everything in memory and is pure; what was assigned
// survives a restart in the objects' statuses, out of which Adopt takes it over
// before anything new is claimed. What an owner has stays with it as long as its
// wish allows.
package alloc

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"fairlead.io/fairlead/internal/lb"
)

// Owner is the identity of an object that has addresses: comparable, so that it
// serves as a map key.
type Owner struct {
	// Kind tells services from other kinds of objects that have addresses.
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

// Port is what an owner needs of an address. Two owners that share an address have
// none in common.
type Port struct {
	Number   uint16
	Protocol lb.Protocol
}

// String returns for example "443/tcp".
func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

// Address is an assigned address. Pool is the one that it counts as taken from,
// "" if none holds it any more.
type Address struct {
	Address netip.Addr
	Pool    string
}

// Allocator knows who has which address. Its methods may be called from several
// goroutines.
type Allocator struct {
	mu    sync.Mutex
	pools []*pool
	// owners are those who hold at least one address, tenants the same by address.
	owners  map[Owner]*tenant
	tenants map[netip.Addr][]*tenant
	// shared are the addresses whose tenants would take others in, sorted.
	shared               map[circle][]netip.Addr
	occupied4, occupied6 occupied
}

// tenant is an owner with the addresses that it holds, at most one of each family,
// and what it asked for when it last claimed them.
type tenant struct {
	owner   Owner
	ports   []Port
	sharing Sharing
	held    []Address
}

// New returns an allocator without pools.
func New() *Allocator {
	return &Allocator{
		owners:  map[Owner]*tenant{},
		tenants: map[netip.Addr][]*tenant{},
		shared:  map[circle][]netip.Addr{},
	}
}

// Of returns the addresses of an owner, IPv4 first; none if it is not known.
func (a *Allocator) Of(owner Owner) []Address {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.owners[owner]; t != nil {
		return t.addresses()
	}
	return nil
}

// Owners returns the owners of an address, sorted.
func (a *Allocator) Owners(address netip.Addr) []Owner {
	a.mu.Lock()
	defer a.mu.Unlock()
	return sortedOwners(a.tenants[address])
}

// Release gives an owner's addresses back; it need not have any.
func (a *Allocator) Release(owner Owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.owners[owner]; t != nil {
		a.vacateAll(t)
	}
}

func (t *tenant) addresses() []Address {
	return slices.SortedFunc(slices.Values(t.held), func(a, b Address) int { return a.Address.Compare(b.Address) })
}

// holding returns the address of a family that a tenant holds.
func (t *tenant) holding(f Family) (Address, bool) {
	i := slices.IndexFunc(t.held, func(h Address) bool { return FamilyOf(h.Address) == f })
	if i < 0 {
		return Address{}, false
	}
	return t.held[i], true
}

// occupy gives a tenant an address that it may have and doesn't hold.
func (a *Allocator) occupy(t *tenant, h Address) {
	a.owners[t.owner] = t
	t.held = append(t.held, h)
	a.tenants[h.Address] = append(a.tenants[h.Address], t)
	if len(a.tenants[h.Address]) > 1 {
		return
	}
	a.occupied(FamilyOf(h.Address)).add(h.Address.AsSlice())
	a.count(h.Address, 1)
	a.share(t, h.Address)
}

// vacate takes an address that a tenant holds from it.
func (a *Allocator) vacate(t *tenant, address netip.Addr) {
	t.held = slices.DeleteFunc(t.held, func(h Address) bool { return h.Address == address })
	if len(t.held) == 0 {
		delete(a.owners, t.owner)
	}
	others := slices.DeleteFunc(a.tenants[address], func(o *tenant) bool { return o == t })
	if a.tenants[address] = others; len(others) > 0 {
		return
	}
	delete(a.tenants, address)
	a.occupied(FamilyOf(address)).remove(address.AsSlice())
	a.count(address, -1)
	a.unshare(t, address)
}

// vacateAll takes all its addresses from a tenant, and returns them.
func (a *Allocator) vacateAll(t *tenant) []Address {
	held := t.addresses()
	for _, h := range held {
		a.vacate(t, h.Address)
	}
	return held
}

// occupied returns the set of a family's addresses that have owners.
func (a *Allocator) occupied(f Family) *occupied {
	if f == IPv4 {
		return &a.occupied4
	}
	return &a.occupied6
}

func sortedOwners(tenants []*tenant) []Owner {
	var owners []Owner
	for _, t := range tenants {
		owners = append(owners, t.owner)
	}
	slices.SortFunc(owners, Owner.Compare)
	return owners
}
