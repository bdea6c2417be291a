// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
)

// Unit is what is served by one group and moves as a whole: a service, or several
// that share addresses.
type Unit struct {
	// Key is its identity.
	Key string
	// Addresses is how many it has.
	Addresses int
	// Groups are the names of the groups that match it: all of its services.
	Groups []string
	// Group is the one that serves it so far, "" if none does.
	Group string
}

// Capacity is what a group has to serve units with.
type Capacity struct {
	Group string
	// Nodes is how many members it has, Ready how many of them are Ready.
	Nodes, Ready int
}

// Serve returns the group that serves each unit, by the unit's key; a unit that no
// group can serve is not in it. Groups come in the order in which they were created,
// units in any.
//
// A unit stays with its group while that exists, matches and has nodes, Ready or
// not, and also without nodes if no other group that matches has any: units move
// because they must, never for balance's sake, and a new group fills with new
// units. Those that need a group get it in turn, most addresses first, then by
// key: that of the matching ones with nodes that has the fewest addresses for each
// Ready node, theirs included; one without Ready nodes only if there is no other.
func Serve(units []Unit, groups []Capacity) map[string]string {
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
		best := lightest(u, capacities)
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

// load is a group with the number of addresses that it serves.
type load struct {
	Capacity
	addresses int
	order     int
}

// lightest returns the group that would have the fewest addresses for each node
// with a unit, nil if no group that matches it has nodes.
func lightest(u Unit, capacities map[string]*load) (best *load) {
	for _, name := range u.Groups {
		g := capacities[name]
		if g != nil && g.Nodes > 0 && (best == nil || g.compare(best, u.Addresses) < 0) {
			best = g
		}
	}
	return best
}

// compare orders groups by what they would have with some more addresses.
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
