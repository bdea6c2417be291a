// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"maps"
	"slices"
)

// places are groups and spare nodes while the one is filled with the other.
type places struct {
	groups []*group // in the order of creation
	spare  []Node   // sorted by name
	// choice is how many groups match a node.
	choice map[string]int
}

// group is a Group with the members that it has at this point.
type group struct {
	Group
	eligible map[string]bool
	members  []Node // sorted by name
}

// newPlaces begins with the members that stay.
func newPlaces(groups []Group, nodes []Node) *places {
	p := &places{choice: map[string]int{}}
	left := map[string]Node{}
	for _, n := range nodes {
		left[n.Name] = n
	}
	for _, wish := range groups {
		g := &group{Group: wish, eligible: map[string]bool{}}
		for _, name := range wish.Eligible {
			g.eligible[name] = true
		}
		for name := range g.eligible {
			p.choice[name]++
		}
		g.keep(left)
		p.groups = append(p.groups, g)
	}
	p.spare = slices.SortedFunc(maps.Values(left), compareNames)
	return p
}

// keep takes those members that stay out of the nodes that are left.
func (g *group) keep(left map[string]Node) {
	for _, name := range g.Members {
		if n, exists := left[name]; exists && g.eligible[name] {
			g.add(n)
			delete(left, name)
		}
	}
	for len(g.members) > max(g.Size, 0) {
		n := g.drop()
		left[n.Name] = n
	}
}

// fill puts one spare node that is Ready, or one that isn't, where it is needed
// most, and reports whether there was one and such a place.
func (p *places) fill(ready bool) bool {
	var open []*group
	for _, g := range p.groups {
		if g.open(ready) {
			open = append(open, g)
		}
	}
	slices.SortStableFunc(open, func(a, b *group) int { return a.compareNeed(b, ready) })
	for _, g := range open {
		at, found := p.pick(g, ready)
		if !found {
			continue
		}
		n := p.spare[at]
		p.spare = slices.Delete(p.spare, at, at+1)
		if len(g.members) == g.Size {
			dropped := g.drop()
			at, _ := slices.BinarySearchFunc(p.spare, dropped, compareNames)
			p.spare = slices.Insert(p.spare, at, dropped)
		}
		g.add(n)
		return true
	}
	return false
}

// pick returns the place of the spare that a group gets: of those that the fewest
// groups match, the first by name.
func (p *places) pick(g *group, ready bool) (at int, found bool) {
	for i, n := range p.spare {
		if n.Ready == ready && g.eligible[n.Name] && (!found || p.choice[n.Name] < p.choice[p.spare[at].Name]) {
			at, found = i, true
		}
	}
	return at, found
}

// open reports whether a spare would be of use: one that is Ready also in the
// place of a member that isn't.
func (g *group) open(ready bool) bool {
	return len(g.members) < g.Size || ready && g.ready() < g.Size
}

// compareNeed orders open groups, whose sizes are therefore positive: those with the
// smallest part of their size come first.
func (g *group) compareNeed(o *group, ready bool) int {
	fuller := cmp.Compare(len(g.members)*o.Size, len(o.members)*g.Size)
	if !ready {
		return fuller
	}
	return cmp.Or(cmp.Compare(g.ready()*o.Size, o.ready()*g.Size), fuller)
}

func (g *group) ready() (count int) {
	for _, n := range g.members {
		if n.Ready {
			count++
		}
	}
	return count
}

func (g *group) add(n Node) {
	at, _ := slices.BinarySearchFunc(g.members, n, compareNames)
	g.members = slices.Insert(g.members, at, n)
}

// drop takes out the member that matters least: the last by name of those that are
// not Ready, or if all are, of all.
func (g *group) drop() Node {
	at := len(g.members) - 1
	for i, n := range g.members {
		if !n.Ready {
			at = i
		}
	}
	n := g.members[at]
	g.members = slices.Delete(g.members, at, at+1)
	return n
}

func compareNames(a, b Node) int { return cmp.Compare(a.Name, b.Name) }
