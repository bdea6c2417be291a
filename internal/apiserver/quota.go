// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"math"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
)

// quota has the usage of node resources by the load balancers of projects.
type quota struct {
	bounds spec.Bounds
	// claims are by project and name.
	claims map[string]map[string]spec.Claim
	// marks has the firewall marks that nodes get, by project and name.
	marks *lb.Marks[[2]string]
	mask  uint32
}

func newQuota(p *policy) *quota {
	return &quota{p.bounds, map[string]map[string]spec.Claim{}, lb.NewMarks[[2]string](), p.marks}
}

// claim returns the usage of a load balancer at the address in its status. One without listeners
// counts as one with a listener: it has an address, and is stored.
func (q *quota) claim(b *v1alpha1.LoadBalancer) spec.Claim {
	c := q.bounds.ClaimOf(b, nil)
	c.Usage.Services = max(1, c.Usage.Services)
	for i := range b.Spec.Pools {
		c.Members += len(b.Spec.Pools[i].Members)
	}
	return c
}

// set replaces the claim of a load balancer.
func (q *quota) set(project string, c spec.Claim) {
	if q.claims[project] == nil {
		q.claims[project] = map[string]spec.Claim{}
	}
	q.claims[project][c.Name] = c
	if !c.Marked {
		q.marks.Set([2]string{project, c.Name}, project, 0, 0)
	}
}

// mark returns the firewall mark that nodes get for a load balancer that is still stored; 0 if it has
// none, or none is free.
func (q *quota) mark(b *v1alpha1.LoadBalancer) int64 {
	if !q.claims[b.Namespace][b.Name].Marked {
		return 0
	}
	return int64(q.marks.Set([2]string{b.Namespace, b.Name}, b.Namespace, uint32(b.Spec.FirewallMark), q.mask))
}

func (q *quota) remove(project, name string) {
	delete(q.claims[project], name)
	q.marks.Set([2]string{project, name}, project, 0, 0)
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
// than before, or the project has room for it in addition to all others. Members count as stored,
// whether or not a listener uses their pool, and as many are allowed as backends.
func (q *quota) exceeded(project string, c spec.Claim) string {
	if before := q.claims[project][c.Name].Members; c.Members > before {
		members := c.Members - before
		for _, other := range q.claims[project] {
			members += other.Members
		}
		if members > q.bounds.Backends {
			return fmt.Sprintf("the load balancers of the project would have %d members: more than %d (policy, services.perNamespace.backends)",
				members, q.bounds.Backends)
		}
	}
	if !c.Usage.Grows(q.claims[project][c.Name].Usage) {
		return ""
	}
	c.Created = time.Unix(math.MaxInt32, 0) // the youngest
	return q.refused(project, &c)[c.Name].Message
}

// The bytes that a project may store follow from the other bounds: for each service and backend, and
// for each prefix of sources.
const bytesOfService, bytesOfBackend, bytesOfPrefix = 4096, 512, 64

// exceededBytes returns why the load balancers of a project may not have that many bytes; empty if
// they may.
func (q *quota) exceededBytes(n int) string {
	most := q.bounds.Services*bytesOfService + q.bounds.Backends*bytesOfBackend + q.bounds.SourcePrefixes*bytesOfPrefix
	if n <= most {
		return ""
	}
	return fmt.Sprintf("the load balancers of the project would have %d bytes: more than %d, for what services.perNamespace of the policy allows", n, most)
}
