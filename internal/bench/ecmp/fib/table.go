// SPDX-License-Identifier: Apache-2.0

package fib

import (
	"net/netip"
	"slices"
)

// table is what messages have told of a kernel's main routing table.
type table struct {
	// objects are single nexthop objects, groups those that consist of others.
	objects map[uint32]Hop
	groups  map[uint32][]member
	routes  map[routeKey]route
}

// member is one of a group of nexthop objects.
type member struct {
	object uint32
	weight int
}

// routeKey tells routes to the same prefix apart.
type routeKey struct {
	prefix netip.Prefix
	metric uint32
}

// route has the number of a nexthop object, or else next hops of its own.
type route struct {
	object uint32
	hops   []Hop
}

func newTable() *table {
	return &table{objects: map[uint32]Hop{}, groups: map[uint32][]member{}, routes: map[routeKey]route{}}
}

// apply notes what a message tells.
func (t *table) apply(m message) {
	switch {
	case m.object != 0:
		t.applyObject(m)
	case m.gone:
		t.remove(m.key, m.route)
	default:
		t.routes[m.key] = m.route
	}
}

// applyObject notes a nexthop object. The kernel removes the routes of one that
// goes without another word, and tells what is left of its groups.
func (t *table) applyObject(m message) {
	delete(t.objects, m.object)
	delete(t.groups, m.object)
	switch {
	case m.gone:
		for key, r := range t.routes {
			if r.object == m.object {
				delete(t.routes, key)
			}
		}
	case m.members != nil:
		t.groups[m.object] = m.members
	default:
		t.objects[m.object] = m.hop
	}
}

// remove takes a route away, or some of its next hops: each is a route of its
// own for IPv6.
func (t *table) remove(key routeKey, gone route) {
	old, known := t.routes[key]
	if !known {
		return
	}
	if old.object == 0 {
		old.hops = slices.DeleteFunc(slices.Clone(old.hops), func(h Hop) bool {
			return slices.ContainsFunc(gone.hops, func(g Hop) bool { return g.Gateway == h.Gateway })
		})
		if len(old.hops) > 0 {
			t.routes[key] = old
			return
		}
	}
	delete(t.routes, key)
}

// lookup returns the next hops to a prefix: those of the route with the smallest
// metric.
func (t *table) lookup(prefix netip.Prefix) Hops {
	var best route
	metric, found := uint32(0), false
	for key, r := range t.routes {
		if key.prefix == prefix && (!found || key.metric < metric) {
			best, metric, found = r, key.metric, true
		}
	}
	if best.object == 0 {
		return newHops(best.hops)
	}
	if hop, single := t.objects[best.object]; single {
		return Hops{hop}
	}
	var hops []Hop
	for _, m := range t.groups[best.object] {
		if hop, known := t.objects[m.object]; known {
			hops = append(hops, Hop{Gateway: hop.Gateway, Weight: m.weight})
		}
	}
	return newHops(hops)
}
