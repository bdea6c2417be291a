// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
	"math"
	"slices"
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
	usage := q.bounds.LoadBalancerUsage(b)
	usage.Services = max(1, usage.Services)
	return spec.Claim{Kind: "LoadBalancer", Name: b.Name, Created: b.CreationTimestamp.Time, Usage: usage}
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

// refused returns why a load balancer with this claim isn't served; empty if it is. The oldest ones
// of a project are served that fit into the bounds together.
func (q *quota) refused(project string, c spec.Claim) string {
	all := []spec.Claim{c}
	for name, other := range q.claims[project] {
		if name != c.Name {
			all = append(all, other)
		}
	}
	for i, why := range q.bounds.Refused(all) { // sorts them
		if all[i].Name == c.Name {
			return why
		}
	}
	return ""
}

// refusedOf returns why load balancers of a project aren't served, by name.
func (q *quota) refusedOf(project string) map[string]string {
	all := slices.Collect(maps.Values(q.claims[project]))
	refused := map[string]string{}
	for i, why := range q.bounds.Refused(all) { // sorts them
		if why != "" {
			refused[all[i].Name] = why
		}
	}
	return refused
}

// refusedOfAll returns why load balancers aren't served, by project and name.
func (q *quota) refusedOfAll() map[string]map[string]string {
	refused := map[string]map[string]string{}
	for project := range q.claims {
		refused[project] = q.refusedOf(project)
	}
	return refused
}

// exceeded returns why a load balancer may not use as much as a claim says; empty if it uses no more
// than before, or the project has room for it in addition to all others.
func (q *quota) exceeded(project string, c spec.Claim) string {
	before, now := q.claims[project][c.Name].Usage, c.Usage
	if now.Ports <= before.Ports && now.Ranges <= before.Ranges && now.Services <= before.Services && now.Backends <= before.Backends &&
		now.SourcePrefixes <= before.SourcePrefixes && now.Probes <= before.Probes {
		return ""
	}
	c.Created = time.Unix(math.MaxInt32, 0) // the youngest
	return q.refused(project, c)
}
