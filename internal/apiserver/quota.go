// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"math"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
)

// quota has the usage of node resources by the load balancers of projects.
type quota struct {
	bounds spec.Bounds
	// claims are by project and name.
	claims map[string]map[string]spec.Claim
}

func newQuota(bounds spec.Bounds) *quota {
	return &quota{bounds, map[string]map[string]spec.Claim{}}
}

// claim returns the usage of a load balancer at the address in its status. One without listeners
// counts as one with a listener: it has an address, and is stored.
func (q *quota) claim(b *v1alpha1.LoadBalancer) spec.Claim {
	c := q.bounds.ClaimOf(b, nil)
	c.Usage.Services = max(1, c.Usage.Services)
	return c
}

// set replaces the claim of a load balancer.
func (q *quota) set(project string, c spec.Claim) {
	if q.claims[project] == nil {
		q.claims[project] = map[string]spec.Claim{}
	}
	q.claims[project][c.Name] = c
}

func (q *quota) remove(project, name string) {
	delete(q.claims[project], name)
	if len(q.claims[project]) == 0 {
		delete(q.claims, project)
	}
}

// refused returns why load balancers of a project aren't served, by name, once one of them has the
// claim changed; nil for none.
func (q *quota) refused(project string, changed *spec.Claim) map[string]spec.Refusal {
	var all []spec.Claim
	for name, c := range q.claims[project] {
		if changed == nil || name != changed.Name {
			all = append(all, c)
		}
	}
	if changed != nil {
		all = append(all, *changed)
	}
	refused := map[string]spec.Refusal{}
	for i, why := range spec.Admit(map[string]spec.Bounds{defaultGroup: q.bounds}, all) {
		if why.Reason != "" {
			refused[all[i].Name] = why
		}
	}
	return refused
}

// exceeded returns why a load balancer may not use as much as a claim says; empty if it uses no more
// than before, or the project has room for it in addition to all others.
func (q *quota) exceeded(project string, c spec.Claim) string {
	if !c.Usage.Grows(q.claims[project][c.Name].Usage) {
		return ""
	}
	c.Created = time.Unix(math.MaxInt32, 0) // the youngest
	return q.refused(project, &c)[c.Name].Message
}
