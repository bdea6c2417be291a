// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"fmt"
	"net/netip"
	"slices"
)

// Sharing says with whom an owner would share an address: with owners of its
// namespace that have the same key, the same mode, and none of its ports.
type Sharing struct {
	// Key is empty for those who don't share.
	Key string
	// Mode is what has to be alike because packets to the address are treated alike:
	// a Service's externalTrafficPolicy.
	Mode string
}

// circle are those who may be on one address if their ports allow it.
type circle struct {
	namespace string
	Sharing
}

// circle returns the circle of a tenant, and whether it would share at all.
func (t *tenant) circle() (circle, bool) {
	return circle{t.owner.Namespace, t.sharing}, t.sharing.Key != ""
}

// share makes an address known to the circle of its first tenant.
func (a *Allocator) share(t *tenant, address netip.Addr) {
	if c, shares := t.circle(); shares {
		at, _ := slices.BinarySearchFunc(a.shared[c], address, netip.Addr.Compare)
		a.shared[c] = slices.Insert(a.shared[c], at, address)
	}
}

// unshare undoes share when an address has lost its last tenant.
func (a *Allocator) unshare(t *tenant, address netip.Addr) {
	c, shares := t.circle()
	if !shares {
		return
	}
	if at, found := slices.BinarySearchFunc(a.shared[c], address, netip.Addr.Compare); found {
		a.shared[c] = slices.Delete(a.shared[c], at, at+1)
	}
	if len(a.shared[c]) == 0 {
		delete(a.shared, c)
	}
}

// refusal says why a tenant can't be on an address beside those who are; nil if it
// can.
func (a *Allocator) refusal(t *tenant, address netip.Addr) error {
	for _, other := range a.tenants[address] {
		if why := t.quarrel(other); other != t && why != "" {
			return &TakenError{address, other.owner, why}
		}
	}
	return nil
}

// quarrel says why two tenants can't share an address, "" if they can.
func (t *tenant) quarrel(o *tenant) string {
	switch {
	case t.sharing.Key == "" && o.sharing.Key == "":
		return "neither has a sharing key"
	case t.sharing.Key != o.sharing.Key:
		return "the sharing keys differ"
	case t.owner.Namespace != o.owner.Namespace:
		return "only owners of one namespace can share it"
	case t.sharing.Mode != o.sharing.Mode:
		return fmt.Sprintf("one is %q, the other %q", o.sharing.Mode, t.sharing.Mode)
	}
	for _, p := range t.ports {
		if slices.Contains(o.ports, p) {
			return fmt.Sprintf("both have port %s", p)
		}
	}
	return ""
}

// company returns the first address of a family that a tenant can share, in
// the order of pools.
func (a *Allocator) company(t *tenant, f Family, pools []*pool) (Address, bool) {
	c, shares := t.circle()
	if !shares {
		return Address{}, false
	}
	for _, p := range pools {
		for _, address := range a.shared[c] {
			if FamilyOf(address) == f && p.holds(address) && a.refusal(t, address) == nil {
				return Address{address, p.Name}, true
			}
		}
	}
	return Address{}, false
}

// Together returns the owners that have to be served by the same nodes as an
// owner, itself first if it has an address: those with whom it shares one, those
// with whom they do, and so on. The others are sorted.
func (a *Allocator) Together(owner Owner) []Owner {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.owners[owner]
	if first == nil {
		return nil
	}
	found := []*tenant{first}
	for i := 0; i < len(found); i++ {
		for _, h := range found[i].held {
			for _, t := range a.tenants[h.Address] {
				if !slices.Contains(found, t) {
					found = append(found, t)
				}
			}
		}
	}
	return append([]Owner{owner}, sortedOwners(found[1:])...)
}
