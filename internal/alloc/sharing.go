// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"fmt"
	"net/netip"
	"slices"
)

// Sharing has the conditions for sharing an address: owners of one namespace with equal keys
// and modes, and without common ports.
type Sharing struct {
	// Key is empty for owners that don't share.
	Key string
	// Mode has to be equal because packets to an address are handled alike:
	// externalTrafficPolicy of a Service.
	Mode string
}

// sharingKey identifies the owners that may share addresses if their ports allow it.
type sharingKey struct {
	namespace string
	Sharing
}

// anyMode returns the key without mode, by which shareable addresses are known.
func (k sharingKey) anyMode() sharingKey {
	k.Mode = ""
	return k
}

// checkSharing returns an error if a holder can't share an address with its holders. It names the first one by
// name: their order changes with each update, and the error of a status must not.
func (o *ownership) checkSharing(t *holder, address netip.Addr) error {
	var first *holder
	for _, other := range o.holders[address] {
		if other != t && t.sharingConflict(other) != "" && (first == nil || other.owner.Compare(first.owner) < 0) {
			first = other
		}
	}
	if first == nil {
		return nil
	}
	return errorf(Taken, "address %s: assigned to %s, and %s", address, first.owner, t.sharingConflict(first))
}

// sharingConflict says why two holders can't share an address, "" if they can.
func (t *holder) sharingConflict(o *holder) string {
	switch {
	case t.sharing.Key == "" && o.sharing.Key == "":
		return "neither has a sharing key"
	case t.sharing.Key != o.sharing.Key:
		return "the sharing keys differ"
	case t.sharing.namespace != o.sharing.namespace:
		return "only owners of one namespace can share it"
	case t.sharing.Mode != o.sharing.Mode:
		return fmt.Sprintf("one is %q, the other %q", o.sharing.Mode, t.sharing.Mode)
	}
	for i, j := 0, 0; i < len(t.ports) && j < len(o.ports); {
		switch order := t.ports[i].compare(o.ports[j]); {
		case order == 0:
			return fmt.Sprintf("both have port %s", t.ports[i])
		case order < 0:
			i++
		default:
			j++
		}
	}
	return ""
}

// shareable returns the first address of a family that a holder can share, in the order of
// pools.
func (o *ownership) shareable(t *holder, f Family, pools poolList) (Address, bool) {
	if t.sharing.Key == "" {
		return Address{}, false
	}
	for _, p := range pools {
		for _, address := range o.shared[t.sharing.anyMode()] {
			if FamilyOf(address) == f && p.addresses.Contains(address) && o.checkSharing(t, address) == nil {
				return Address{address, p.Name}, true
			}
		}
	}
	return Address{}, false
}

// Unshared returns the first address that others of the same namespace and sharing key have and an owner
// can't share, so that it has another one of the family; no error if there is none.
func (o *ownership) Unshared(owner Owner) (address netip.Addr, why error) {
	t := o.owners[owner]
	if t == nil {
		return netip.Addr{}, nil
	}
	for _, address := range o.shared[t.sharing.anyMode()] {
		if held, has := t.address(FamilyOf(address)); has && held.Address != address {
			if err := o.checkSharing(t, address); err != nil {
				return address, err
			}
		}
	}
	return netip.Addr{}, nil
}

// SharingGroup returns the owners that the same nodes have to serve: the given one, if it has
// an address, first, then those connected to it by shared addresses, sorted.
func (o *ownership) SharingGroup(owner Owner) []Owner {
	first := o.owners[owner]
	if first == nil {
		return nil
	}
	found := []*holder{first}
	for i := 0; i < len(found); i++ {
		for _, h := range found[i].held {
			for _, t := range o.holders[h.Address] {
				if !slices.Contains(found, t) {
					found = append(found, t)
				}
			}
		}
	}
	owners := make([]Owner, len(found))
	for i, t := range found {
		owners[i] = t.owner
	}
	slices.SortFunc(owners[1:], Owner.Compare)
	return owners
}
