// SPDX-License-Identifier: Apache-2.0

// Package placement decides which nodes make a group of load-balancer nodes, and
// which group serves which addresses (the Kakao paper's LBN groups: three nodes
// each, VIPs sharded over groups).
//
// It stands beside package alloc, before the story of ARCHITECTURE.md: the
// controller asks it and publishes the answer, agents serve what their group
// serves. The package is pure and remembers nothing: what was decided before is
// part of the question, and decides most of the answer, because whatever moves
// costs connections. The same question has the same answer, and that answer, asked
// again, doesn't change.
package placement

// Node is a node that may be a member of groups.
type Node struct {
	Name  string
	Ready bool
}

// Group is a group that wants members.
type Group struct {
	Name string
	// Size is how many nodes it wants.
	Size int
	// Eligible are the names of the nodes that its selector matches.
	Eligible []string
	// Members are the names of the nodes that it has so far.
	Members []string
}

// Members returns the names of each group's nodes, sorted, by the group's name.
// Groups come in the order in which they were created, nodes in any.
//
// A node is in one group at most. A member stays while it exists and is eligible; if
// a group has become smaller, those that are not Ready go first, and then the last
// by name. Spare nodes fill groups, always the one with the fewest Ready members
// relative to its size; a member that is not Ready gives way to a Ready spare, and
// only to one. Nodes that are not Ready fill what is open then. Of the spares that
// would do, the one that the fewest groups match is taken, lest another group miss
// it. A node that is a member already never changes groups to make them more even.
func Members(groups []Group, nodes []Node) map[string][]string {
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
