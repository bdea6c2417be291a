// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"net/netip"
	"slices"
)

// index finds the entries that an event concerns without a look at all of them: a
// node of a container cluster has thousands, and hundreds of devices that come and
// go.
type index struct {
	// byAddress holds the entries in the order of their addresses, to find those
	// within a route's prefix; nil before the first event that asks for them.
	byAddress []*entry
	// byDevice holds those whose route uses a device, by its index.
	byDevice map[int]map[*entry]struct{}
	// ports are a bridge's, by its index.
	ports map[int]map[int]struct{}
}

func newIndex() index {
	return index{byDevice: map[int]map[*entry]struct{}{}, ports: map[int]map[int]struct{}{}}
}

// sort puts all entries in order, if they aren't yet.
func (x *index) sort(all map[Target]*entry) []*entry {
	if x.byAddress == nil {
		x.byAddress = make([]*entry, 0, len(all))
		for _, e := range all {
			x.byAddress = append(x.byAddress, e)
		}
		slices.SortFunc(x.byAddress, func(a, b *entry) int {
			return a.target.Address.Compare(b.target.Address)
		})
	}
	return x.byAddress
}

// from returns where the entries of an address, and of those behind it, begin.
func (x *index) from(address netip.Addr) int {
	i, _ := slices.BinarySearchFunc(x.byAddress, address, func(e *entry, a netip.Addr) int {
		return e.target.Address.Compare(a)
	})
	return i
}

// add takes in a new entry, which has no route yet.
func (x *index) add(e *entry) {
	if x.byAddress != nil {
		x.byAddress = slices.Insert(x.byAddress, x.from(e.target.Address), e)
	}
}

// remove forgets an entry.
func (x *index) remove(e *entry) {
	x.unroute(e)
	if x.byAddress == nil {
		return
	}
	first := x.from(e.target.Address)
	if i := slices.Index(x.byAddress[first:], e); i >= 0 {
		x.byAddress = slices.Delete(x.byAddress, first+i, first+i+1)
	}
}

// route takes note of the devices that the entry's route uses.
func (x *index) route(e *entry) {
	for _, p := range e.route.paths {
		if x.byDevice[p.index] == nil {
			x.byDevice[p.index] = map[*entry]struct{}{}
		}
		x.byDevice[p.index][e] = struct{}{}
	}
}

// unroute is the reverse of route.
func (x *index) unroute(e *entry) {
	for _, p := range e.route.paths {
		delete(x.byDevice[p.index], e)
		if len(x.byDevice[p.index]) == 0 {
			delete(x.byDevice, p.index)
		}
	}
}

// join takes note of a device's bridge, if it has one.
func (x *index) join(l link) {
	if l.master == 0 {
		return
	}
	if x.ports[l.master] == nil {
		x.ports[l.master] = map[int]struct{}{}
	}
	x.ports[l.master][l.index] = struct{}{}
}

// part is the reverse of join.
func (x *index) part(l link) {
	delete(x.ports[l.master], l.index)
	if len(x.ports[l.master]) == 0 {
		delete(x.ports, l.master)
	}
}
