// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/alloc"
)

// agree compares the state of an allocator with the model, and checks the
// invariants of every allocator.
func (h *history) agree() error {
	type endpoint struct {
		netip.Addr
		alloc.Port
	}
	owners, served := map[netip.Addr][]alloc.Owner{}, map[endpoint]alloc.Owner{}
	for _, owner := range h.sorted() {
		o := h.model.objects[owner]
		if got := h.real.Of(owner); !slices.Equal(got, o.status) {
			return fmt.Errorf("%s holds %v, want %v", owner, got, o.status)
		}
		for _, a := range h.real.Of(owner) {
			for _, other := range owners[a.Address] {
				if !compatible(o.spec, h.model.objects[other].spec) {
					return fmt.Errorf("%s and %s are both on %s", owner, other, a.Address)
				}
			}
			owners[a.Address] = append(owners[a.Address], owner)
			for _, p := range o.spec.Ports {
				if other, twice := served[endpoint{a.Address, p}]; twice {
					return fmt.Errorf("%s and %s both have %s port %s", owner, other, a.Address, p)
				}
				served[endpoint{a.Address, p}] = owner
			}
		}
	}
	for a, namespace := range h.model.retained {
		if got := retainedFor(h.real, a); got != namespace || len(owners[a]) > 0 {
			return fmt.Errorf("%s is retained for %q, want %q, and its owners are %v", a, got, namespace, owners[a])
		}
	}
	return h.agreeUsage(owners)
}

func (h *history) agreeUsage(owners map[netip.Addr][]alloc.Owner) error {
	for _, p := range h.model.pools {
		var want alloc.Usage
		for _, a := range p.addresses {
			count := &want.IPv4
			if a.Is6() {
				count = &want.IPv6
			}
			count.Size++
			count.Assigned += uint64(min(len(owners[a]), 1))
		}
		if got := h.real.Usage(p.Name); got != want {
			return fmt.Errorf("pool %s has %+v, want %+v", p.Name, got, want)
		}
	}
	for _, owner := range h.sorted() {
		if err := h.agreeTogether(owner, owners); err != nil {
			return err
		}
	}
	return nil
}

// agreeTogether asks for the closure over common addresses.
func (h *history) agreeTogether(owner alloc.Owner, owners map[netip.Addr][]alloc.Owner) error {
	var want []alloc.Owner
	var visit func(alloc.Owner)
	visit = func(o alloc.Owner) {
		if slices.Contains(want, o) {
			return
		}
		want = append(want, o)
		for _, a := range h.model.objects[o].status {
			for _, other := range owners[a.Address] {
				visit(other)
			}
		}
	}
	if len(h.model.objects[owner].status) > 0 {
		visit(owner)
		slices.SortFunc(want[1:], alloc.Owner.Compare)
	}
	if got := h.real.SharingGroup(owner); !slices.Equal(got, want) {
		return fmt.Errorf("%s is together with %v, want %v", owner, got, want)
	}
	return nil
}
