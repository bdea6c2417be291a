// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"cmp"
	"slices"
)

// Unit is a service, or several that share addresses, served by one group.
type Unit struct {
	// Key identifies the unit.
	Key string
	// Addresses is its number of addresses.
	Addresses int
	// Groups are the names of the groups that match all of its services.
	Groups []string
	// Group is its current group, "" for none.
	Group string
}

// Capacity is the capacity of a group.
type Capacity struct {
	Group string
	// Nodes is the number of its members, Ready the number of Ready ones.
	Nodes, Ready int
}

// PlaceUnits returns the group of each unit, by the unit's key; units that no group can serve are
// missing. Groups are in the order of their creation, units in any order.
//
// A unit stays in its group while that exists, matches and has nodes, Ready or not, and also
// without nodes if no other matching group has any: units are never moved for a more even
// distribution, and a new group gets only new units. Units without group are assigned in the
// order of their number of addresses, then by key, to the matching group with nodes that will
// have the fewest addresses per Ready node; to one without Ready nodes only if there is no
// other.
func PlaceUnits(units []Unit, groups []Capacity) map[string]string {
	capacities := map[string]*load{}
	for i, c := range groups {
		capacities[c.Group] = &load{Capacity: c, order: i}
	}
	served := make(map[string]string, len(units))
	var open []Unit
	for _, u := range units {
		g := capacities[u.Group]
		if g == nil || g.Nodes == 0 || !slices.Contains(u.Groups, u.Group) {
			open = append(open, u)
			continue
		}
		served[u.Key] = u.Group
		g.addresses += u.Addresses
	}
	slices.SortFunc(open, func(a, b Unit) int {
		return cmp.Or(cmp.Compare(b.Addresses, a.Addresses), cmp.Compare(a.Key, b.Key))
	})
	for _, u := range open {
		var best *load
		for _, name := range u.Groups {
			g := capacities[name]
			if g != nil && g.Nodes > 0 && (best == nil || g.compare(best, u.Addresses) < 0) {
				best = g
			}
		}
		if best == nil && slices.Contains(u.Groups, u.Group) {
			best = capacities[u.Group] // without nodes, as all others
		}
		if best != nil {
			served[u.Key] = best.Group
			best.addresses += u.Addresses
		}
	}
	return served
}

// load is a group and the number of its addresses.
type load struct {
	Capacity
	addresses int
	order     int
}

// compare orders groups by their load with more addresses.
func (g *load) compare(o *load, more int) int {
	if (g.Ready > 0) != (o.Ready > 0) {
		return cmp.Compare(o.Ready, g.Ready)
	}
	nodes, others := g.Ready, o.Ready
	if nodes == 0 {
		nodes, others = g.Nodes, o.Nodes
	}
	return cmp.Or(cmp.Compare((g.addresses+more)*others, (o.addresses+more)*nodes), cmp.Compare(g.order, o.order))
}
