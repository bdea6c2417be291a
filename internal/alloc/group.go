// SPDX-License-Identifier: Apache-2.0

package alloc

import (
	"cmp"
	"maps"
	"slices"
)

// Node is a node that may be a member of groups.
type Node struct {
	Name  string
	Ready bool
}

// Group is a group to fill with nodes.
type Group struct {
	Name string
	// Size is the wanted number of nodes.
	Size int
	// Eligible are the names of the nodes that match its selector.
	Eligible []string
	// Members are the names of its current nodes.
	Members []string
}

// PlaceNodes returns the names of each group's nodes, sorted, by the group's name. Groups are
// in the order of their creation, nodes in any order.
//
// A node is in at most one group. A member stays while it exists and is eligible; if a group
// has shrunk, nodes that are not Ready are removed first, then the last ones by name. Spare
// nodes fill the group with the fewest Ready members relative to its size; a Ready spare
// replaces a member that is not Ready. Nodes that are not Ready fill the remaining places.
// Of suitable spares the one that the fewest groups match is taken, to leave others for
// other groups. Members never change groups for a more even distribution.
func PlaceNodes(groups []Group, nodes []Node) map[string][]string {
	p := newPlaces(groups, nodes)
	for p.fill(true) {
		continue
	}
	for p.fill(false) {
		continue
	}
	members := make(map[string][]string, len(groups))
	for _, g := range p.groups {
		names := make([]string, 0, len(g.members))
		for _, n := range g.members {
			names = append(names, n.Name)
		}
		members[g.Name] = names
	}
	return members
}

// places are the groups and the spare nodes while groups are filled.
type places struct {
	groups []*group // in the order of creation
	spare  []Node   // sorted by name
	// choice is the number of groups that match a node.
	choice map[string]int
}

// group is a Group with its members so far.
type group struct {
	Group
	eligible map[string]bool
	members  []Node // sorted by name
}

// newPlaces keeps the members that stay.
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

// keep moves the members that stay from the remaining nodes to the group.
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

// fill adds one spare node, Ready or not, to the group that needs it most, and reports
// whether there were both.
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

// pick returns the index of the spare for a group: of those that the fewest groups match, the
// first by name.
func (p *places) pick(g *group, ready bool) (at int, found bool) {
	for i, n := range p.spare {
		if n.Ready == ready && g.eligible[n.Name] && (!found || p.choice[n.Name] < p.choice[p.spare[at].Name]) {
			at, found = i, true
		}
	}
	return at, found
}

// open reports whether the group can use a spare; a Ready one also replaces a member that is
// not Ready.
func (g *group) open(ready bool) bool {
	return len(g.members) < g.Size || ready && g.ready() < g.Size
}

// compareNeed orders open groups, whose sizes are positive, by how much of their size is
// filled.
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

// drop removes the least useful member: the last by name of those that are not Ready, or of
// all.
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
