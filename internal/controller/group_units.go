// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/alloc/placement"
	"fairlead.io/fairlead/internal/controller/ledger"
)

// filter is the selectors of a group.
type filter struct {
	nodes, objects, namespaces labels.Selector
	classes                    []string
}

func newFilter(g *v1alpha1.LoadBalancerGroup) (f filter, err error) {
	f.classes = g.Spec.Services.Classes
	if f.nodes, err = selectorOf(&g.Spec.NodeSelector); err != nil {
		return filter{}, fmt.Errorf("nodeSelector: %w", err)
	}
	if f.objects, err = selectorOf(g.Spec.Services.Selector); err != nil {
		return filter{}, fmt.Errorf("services.selector: %w", err)
	}
	if f.namespaces, err = selectorOf(g.Spec.Services.NamespaceSelector); err != nil {
		return filter{}, fmt.Errorf("services.namespaceSelector: %w", err)
	}
	return f, nil
}

// serves reports whether a group may serve all members of a unit.
func (f filter) serves(u ledger.Unit) bool {
	return !slices.ContainsFunc(u.Members, func(m ledger.Member) bool {
		return !f.hasClass(m.Class) || !f.objects.Matches(labelSet(m.Labels)) || !f.namespaces.Matches(labelSet(m.Namespace))
	})
}

// hasClass reports whether Services of a class are the group's. Groups that name no
// class have those of Fairlead's own.
func (f filter) hasClass(class string) bool {
	if len(f.classes) == 0 {
		return class == "" || class == v1alpha1.LoadBalancerClass
	}
	return slices.Contains(f.classes, class)
}

func labelSet(l map[string]string) labels.Set { return l }

// served is who serves whom.
type served struct {
	groups map[alloc.Owner]string
	counts map[string]count
}

// withhold leaves those who were to be given to a group where they are.
func (s served) withhold(group string, before *assignments) {
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

// count is how many Services and LoadBalancers, and how many addresses, a group
// serves.
type count struct{ services, addresses int }

// serve decides which groups serve whom.
func (r *groupReconciler) serve(groups []*group, members []member) served {
	units := r.ledger.Units()
	capacities := make([]placement.Capacity, len(groups))
	for i, g := range groups {
		capacities[i] = placement.Capacity{Group: g.Name, Nodes: len(g.nodes)}
		for _, m := range members {
			if m.serving && slices.Contains(g.nodes, m.Name) {
				capacities[i].Ready++
			}
		}
	}
	questions := make([]placement.Unit, len(units))
	for i, u := range units {
		questions[i] = r.question(u, groups)
	}
	answers := placement.Serve(questions, capacities)
	s := served{groups: map[alloc.Owner]string{}, counts: map[string]count{}}
	for i, u := range units {
		name := answers[questions[i].Key]
		for _, m := range u.Members {
			s.groups[m.Owner] = name
		}
		c := s.counts[name]
		s.counts[name] = count{c.services + len(u.Members), c.addresses + u.Addresses}
	}
	return s
}

// question is a unit as it is placed. Its group so far is that of its first member
// that has one.
func (r *groupReconciler) question(u ledger.Unit, groups []*group) placement.Unit {
	q := placement.Unit{Key: u.Members[0].Owner.String(), Addresses: u.Addresses}
	for _, g := range groups {
		if g.unsound == nil && g.filter.serves(u) {
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

// groupCounts is what metrics tell of groups.
type groupCounts struct {
	mu     sync.Mutex
	groups []groupCount
}

type groupCount struct {
	name         string
	nodes, ready int
	count
}

func (c *groupCounts) set(groups []*group, counts map[string]count) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups = nil
	for _, g := range groups {
		c.groups = append(c.groups, groupCount{g.Name, len(g.nodes), int(g.Status.ReadyNodes), counts[g.Name]})
	}
}

func (c *groupCounts) get() []groupCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.groups)
}

// compareAge orders groups by when they were created, and by name.
func compareAge(a, b *group) int {
	if age := a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time); age != 0 {
		return age
	}
	return strings.Compare(a.Name, b.Name)
}
