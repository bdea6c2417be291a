// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"fmt"
	"slices"

	"fairlead.io/fairlead/internal/alloc"
)

// checkMembers checks the invariants of PlaceNodes on one result.
func checkMembers(groups []alloc.Group, nodes []alloc.Node, members map[string][]string) error {
	ready, groupOf := readiness(nodes), map[string]string{}
	if len(members) != len(groups) {
		return fmt.Errorf("%d groups, want %d", len(members), len(groups))
	}
	for _, g := range groups {
		now := members[g.Name]
		if len(now) > g.Size || !slices.IsSorted(now) {
			return fmt.Errorf("group %s: %v are too many, or not sorted", g.Name, now)
		}
		for _, name := range now {
			if _, exists := ready[name]; !exists || !slices.Contains(g.Eligible, name) {
				return fmt.Errorf("group %s: node %s doesn't exist or doesn't match", g.Name, name)
			}
			if other, twice := groupOf[name]; twice {
				return fmt.Errorf("node %s: in %s and %s", name, other, g.Name)
			}
			groupOf[name] = g.Name
		}
	}
	for _, g := range groups {
		if err := checkStay(g, members[g.Name], ready); err != nil && !contested(groups) {
			return fmt.Errorf("group %s: %w", g.Name, err)
		}
	}
	for _, n := range nodes {
		if groupOf[n.Name] != "" {
			continue
		}
		for _, g := range groups {
			if slices.Contains(g.Eligible, n.Name) && useful(g, n, members[g.Name], ready) {
				return fmt.Errorf("node %s: spare, though %s has use for it", n.Name, g.Name)
			}
		}
	}
	return checkEmpty(groups, members, ready)
}

// checkStay holds that members leave a group only where they have to, or for a
// Ready one if they are not.
func checkStay(g alloc.Group, now []string, ready map[string]bool) error {
	var could []string
	readyBefore, readyNow := 0, 0
	for _, name := range g.Members {
		if _, exists := ready[name]; exists && slices.Contains(g.Eligible, name) {
			could = append(could, name)
			readyBefore += count(ready[name])
		}
	}
	newcomers := 0
	for _, name := range now {
		readyNow += count(ready[name])
		newcomers += count(!slices.Contains(could, name))
	}
	gone := slices.DeleteFunc(slices.Clone(could), func(name string) bool { return slices.Contains(now, name) })
	surplus := max(len(could)-g.Size, 0)
	for _, name := range gone {
		if ready[name] && readyBefore <= g.Size {
			return fmt.Errorf("%s had to leave, though it is Ready", name)
		}
	}
	if replaced := len(gone) - surplus; replaced > 0 && (readyNow < readyBefore+replaced || len(now) < g.Size) {
		return fmt.Errorf("%v had to leave for others that aren't Ready, or for none", gone)
	}
	if readyNow < min(readyBefore, g.Size) || surplus > 0 && newcomers > readyNow-min(readyBefore, g.Size) {
		return fmt.Errorf("%d are Ready now, %d of those before; %d are new", readyNow, readyBefore, newcomers)
	}
	return nil
}

// contested reports whether two groups' statuses name the same node.
func contested(groups []alloc.Group) bool {
	var all []string
	for _, g := range groups {
		all = append(all, g.Members...)
	}
	slices.Sort(all)
	return len(slices.Compact(slices.Clone(all))) < len(all)
}

// useful reports whether a spare node should be a member.
func useful(g alloc.Group, n alloc.Node, members []string, ready map[string]bool) bool {
	lame := slices.ContainsFunc(members, func(name string) bool { return !ready[name] })
	return len(members) < g.Size || n.Ready && lame && g.Size > 0
}

// checkEmpty holds that no group has got two Ready nodes of which one could have
// been the first of another.
func checkEmpty(groups []alloc.Group, members map[string][]string, ready map[string]bool) error {
	for _, empty := range groups {
		if empty.Size <= 0 || len(members[empty.Name]) > 0 {
			continue
		}
		for _, g := range groups {
			newcomers := 0
			for _, name := range members[g.Name] {
				isNew := !slices.ContainsFunc(groups, func(o alloc.Group) bool { return slices.Contains(o.Members, name) })
				newcomers += count(isNew && ready[name] && slices.Contains(empty.Eligible, name))
			}
			if newcomers > 1 {
				return fmt.Errorf("group %s: empty, though %s has got %d nodes that match it", empty.Name, g.Name, newcomers)
			}
		}
	}
	return nil
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// checkServe checks the invariants of PlaceUnits on one result.
func checkServe(units []alloc.Unit, groups []alloc.Capacity, served map[string]string) error {
	capacity, addresses := map[string]alloc.Capacity{}, map[string]int{}
	for _, g := range groups {
		capacity[g.Group] = g
	}
	last := map[string]alloc.Unit{} // of those that got a group now
	for _, u := range units {
		group, usable := served[u.Key], usable(u, capacity)
		addresses[group] += u.Addresses
		_, exists := capacity[u.Group]
		stays := exists && slices.Contains(u.Groups, u.Group) && (capacity[u.Group].Nodes > 0 || len(usable) == 0)
		switch {
		case stays && group != u.Group:
			return fmt.Errorf("unit %s: moved from %s to %q", u.Key, u.Group, group)
		case stays:
		case len(usable) == 0 && group != "":
			return fmt.Errorf("unit %s: served by %s, which doesn't match or has no nodes", u.Key, group)
		case len(usable) > 0 && !slices.Contains(usable, group):
			return fmt.Errorf("unit %s: served by %q, want one of %v", u.Key, group, usable)
		default:
			if l, found := last[group]; !found || u.Addresses < l.Addresses || u.Addresses == l.Addresses && u.Key > l.Key {
				last[group] = u
			}
		}
	}
	for _, u := range last {
		got := capacity[served[u.Key]]
		for _, name := range usable(u, capacity) {
			if !fair(u, got, capacity[name], addresses) {
				return fmt.Errorf("unit %s: served by %v, better by %v, of %v", u.Key, got, capacity[name], addresses)
			}
		}
	}
	return nil
}

// usable are the groups that match a unit and have nodes.
func usable(u alloc.Unit, capacity map[string]alloc.Capacity) (names []string) {
	for _, name := range u.Groups {
		if capacity[name].Nodes > 0 {
			names = append(names, name)
		}
	}
	return names
}

// fair reports whether a group was the right one for the last unit that it got:
// another one would not have fewer addresses for each node with it, not even
// with those that it got later.
func fair(u alloc.Unit, got, other alloc.Capacity, addresses map[string]int) bool {
	nodes, others := got.Ready, other.Ready
	if nodes == 0 && others == 0 {
		nodes, others = got.Nodes, other.Nodes
	}
	if nodes == 0 || others == 0 || got.Group == other.Group {
		return nodes > 0
	}
	return addresses[got.Group]*others <= (addresses[other.Group]+u.Addresses)*nodes
}
