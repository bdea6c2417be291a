// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"sync"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/spec"
)

// serves reports whether a group may serve all members of a unit.
func serves(f spec.Filter, u unit) bool {
	return !slices.ContainsFunc(u.Members, func(m unitMember) bool { return !f.Selects(m.Class, m.Labels, m.Namespace) })
}

// placements are the groups of owners, and how much each group serves.
type placements struct {
	groups map[alloc.Owner]string
	counts map[string]count
}

// keep restores the former group of owners that were assigned to a group.
func (s placements) keep(group string, before *assignments) {
	for owner, name := range s.groups {
		if name != group {
			continue
		}
		former, decided := before.of(owner)
		s.groups[owner] = former
		if !decided {
			delete(s.groups, owner)
		}
	}
}

// count is the number of owners and addresses that a group serves.
type count struct{ services, addresses int }

// place assigns units of owners to groups.
func (r *groupReconciler) place(groups []*group) placements {
	units := r.allocations.Units()
	capacities := make([]alloc.Capacity, len(groups))
	for i, g := range groups {
		capacities[i] = alloc.Capacity{Group: g.Name, Nodes: len(g.nodes), Ready: g.ready}
	}
	requests := make([]alloc.Unit, len(units))
	for i, u := range units {
		requests[i] = r.placementUnit(u, groups)
	}
	assigned := alloc.PlaceUnits(requests, capacities)
	s := placements{groups: map[alloc.Owner]string{}, counts: map[string]count{}}
	for i, u := range units {
		name := assigned[requests[i].Key]
		for _, m := range u.Members {
			s.groups[m.Owner] = name
		}
		c := s.counts[name]
		s.counts[name] = count{c.services + len(u.Members), c.addresses + u.Addresses}
	}
	return s
}

// placementUnit translates a unit. Its current group is the first member's that has a group.
func (r *groupReconciler) placementUnit(u unit, groups []*group) alloc.Unit {
	q := alloc.Unit{Key: u.Members[0].Owner.String(), Addresses: u.Addresses}
	for _, g := range groups {
		if g.invalid == nil && serves(g.filter, u) {
			q.Groups = append(q.Groups, g.Name)
		}
	}
	for _, m := range u.Members {
		if q.Group == "" {
			q.Group, _ = r.groups.of(m.Owner)
		}
	}
	return q
}

// assignments are the last decided groups of owners.
type assignments struct {
	mu sync.Mutex
	// groups has every placed owner, "" for those without group.
	groups map[alloc.Owner]string
}

// of returns the group of an owner, "" for none, and whether it has been decided.
func (a *assignments) of(owner alloc.Owner) (group string, decided bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	group, decided = a.groups[owner]
	return group, decided
}

// replace sets new decisions, and returns the owners whose group changed.
func (a *assignments) replace(groups map[alloc.Owner]string) (changed []alloc.Owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for owner, group := range groups {
		if before, decided := a.groups[owner]; !decided || before != group {
			changed = append(changed, owner)
		}
	}
	a.groups = maps.Clone(groups)
	return changed
}

// restore sets the decision of an earlier leader.
func (a *assignments) restore(owner alloc.Owner, group string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.groups[owner] = group
}

// delete removes an owner.
func (a *assignments) delete(owner alloc.Owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.groups, owner)
}
