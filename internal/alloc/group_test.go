// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/alloc"
)

// Nodes are written with a "!" where they are not Ready, groups as name, size,
// nodes that match (all if "*") and members so far.
func TestMembers(t *testing.T) {
	for _, c := range []struct{ name, nodes, groups, want string }{
		{"three to a group", "a b c d e f", "g 3 * -; h 3 * -", "g a,c,e; h b,d,f"},
		{"an empty one first", "a b c d", "g 3 * a,b; h 3 * -", "g a,b; h c,d"},
		{"the emptiest relative to its size", "a b c d e", "g 2 * a; h 6 * b,c", "g a,e; h b,c,d"},
		{"spares stay spare", "a b c d e", "g 3 * b,c,d", "g b,c,d"},
		{"never moved to be more even", "a b c d", "g 3 * a,b,c; h 3 * d; i 3 * -", "g a,b,c; h d; i -"},
		{"unlabelled: a spare comes at once", "a b c d", "g 3 a,c,d a,b,c", "g a,c,d"},
		{"deleted", "a c", "g 3 * a,b,c", "g a,c"},
		{"not Ready, a Ready spare", "a !b c d", "g 3 * a,b,c", "g a,c,d"},
		{"not Ready, no Ready spare", "a !b c !d", "g 3 * a,b,c", "g a,b,c"},
		{"not Ready again: no node goes back", "a b c d", "g 3 * a,c,d", "g a,c,d"},
		{"a Ready spare goes where fewest are Ready", "a !b c !d !e !f s", "g 3 * a,b,c; h 3 * d,e,f", "g a,b,c; h d,e,s"},
		{"open places before those not Ready", "a !b s", "g 3 * a,b", "g a,b,s"},
		{"not Ready ones fill what is open", "!a b !c", "g 3 * -", "g a,b,c"},
		{"who gave way may fill another group", "!a b", "g 1 * a; h 1 a -", "g b; h a"},
		{"smaller: not Ready first", "a !b c", "g 2 * a,b,c", "g a,c"},
		{"smaller: then the last by name", "a b c", "g 2 * c,b,a", "g a,b"},
		{"smaller: the nodes left over serve elsewhere", "a b c", "g 1 * a,b,c; h 2 * -", "g a; h b,c"},
		{"of size 0", "a", "g 0 * a", "g -"},
		{"two groups say that they have it", "a b", "g 1 * a; h 1 * a", "g a; h b"},
		{"a node that no other group can use goes first", "a b c", "g 1 * -; h 1 a -; i 1 a,b -", "g c; h a; i b"},
		{"no nodes", "", "g 3 * a,b", "g -"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := readNodes(c.nodes)
			if got := text(alloc.PlaceNodes(readGroups(c.groups, nodes), nodes)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func readNodes(text string) (nodes []alloc.Node) {
	for name := range strings.FieldsSeq(text) {
		name, notReady := strings.CutPrefix(name, "!")
		nodes = append(nodes, alloc.Node{Name: name, Ready: !notReady})
	}
	return nodes
}

func readGroups(text string, nodes []alloc.Node) (groups []alloc.Group) {
	for line := range strings.SplitSeq(text, "; ") {
		words := strings.Fields(line)
		g := alloc.Group{Name: words[0], Eligible: readNames(words[2]), Members: readNames(words[3])}
		if _, err := fmt.Sscan(words[1], &g.Size); err != nil {
			panic(err)
		}
		if words[2] == "*" {
			g.Eligible = namesOf(nodes)
		}
		groups = append(groups, g)
	}
	return groups
}

func readNames(text string) []string {
	if text == "-" {
		return nil
	}
	return strings.Split(text, ",")
}

func namesOf(nodes []alloc.Node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

// text writes members as the tables do.
func text(members map[string][]string) string {
	var lines []string
	for name, nodes := range members {
		lines = append(lines, name+" "+strings.Join(nodes, ","))
		if len(nodes) == 0 {
			lines[len(lines)-1] += "-"
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}
