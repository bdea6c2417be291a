// SPDX-License-Identifier: Apache-2.0

package kube

import (
	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
)

// tenant is a namespace whose objects a group serves.
type tenant struct{ group, namespace string }

// quotas decides which objects are refused because their namespaces use more than their groups
// allow: the same ones on every node, and as the controller does.
type quotas struct {
	// claims are the claims of all objects with a group, tenants has them by tenant.
	claims  map[Object]*claim
	tenants map[tenant]*tenantClaims
	// refused has the reasons.
	refused map[Object]string
	// endpoints are the endpoints of all Services.
	endpoints map[Object]spec.Endpoints
}

// claim is the usage of an object.
type claim struct {
	tenant tenant
	spec.Claim
	// shape is the shape of a Service in a group.
	shape   spec.ServiceShape
	service *corev1.Service
	group   *group
}

// tenantClaims are the claims of a tenant, their sum, and how many are refused.
type tenantClaims struct {
	all     map[Object]*claim
	tally   spec.Tally
	refused int
}

func newQuotas() quotas {
	return quotas{
		claims: map[Object]*claim{}, tenants: map[tenant]*tenantClaims{},
		refused: map[Object]string{}, endpoints: map[Object]spec.Endpoints{},
	}
}

// count adds the endpoints of a slice to its Service's endpoints, or removes them.
func (q *quotas) count(owner Object, s *slice, add bool) {
	all := q.endpoints[owner]
	if all == nil {
		all = spec.Endpoints{}
		q.endpoints[owner] = all
	}
	n := s.usable
	if !add {
		n = -n
	}
	if all.Add(s.ports, n); len(all) == 0 {
		delete(q.endpoints, owner)
	}
}

// remove removes the claim of an object.
func (q *quotas) remove(id Object, c *claim) {
	delete(q.claims, id)
	t := q.tenants[c.tenant]
	delete(t.all, id)
	t.tally.Count(c.group.bounds, c.Usage, false)
	if q.refused[id] != "" {
		delete(q.refused, id)
		t.refused--
	}
	if len(t.all) == 0 {
		delete(q.tenants, c.tenant)
	}
}

// add adds the claim of an object that has none.
func (q *quotas) add(id Object, c *claim) {
	q.claims[id] = c
	t := q.tenants[c.tenant]
	if t == nil {
		t = &tenantClaims{all: map[Object]*claim{}}
		q.tenants[c.tenant] = t
	}
	t.all[id] = c
	t.tally.Count(c.group.bounds, c.Usage, true)
}

// applyQuotas decides on the tenants of dirty objects whose usage has changed, and marks the objects
// with another decision than before.
func (w *Cache) applyQuotas() {
	q, changed := &w.quotas, map[tenant]bool{}
	for id := range w.dirty {
		before, now := q.claims[id], w.claimOf(id)
		if before != nil && now != nil && before.tenant == now.tenant && before.group == now.group && before.Usage == now.Usage && before.Created.Equal(now.Created) {
			*before = *now // with another shape, perhaps
			continue
		}
		if before != nil {
			q.remove(id, before)
			changed[before.tenant] = true
		}
		if now != nil {
			q.add(id, now)
			changed[now.tenant] = true
		}
	}
	for who := range changed {
		if t := q.tenants[who]; t != nil && (t.refused > 0 || !t.tally.Fits(w.groups[who.group].bounds)) {
			q.refuse(t, who.namespace, w.groups[who.group].bounds, w.dirty)
		}
	}
}

// refuse decides on the objects of a tenant, and marks those with another decision than before.
func (q *quotas) refuse(t *tenantClaims, namespace string, b spec.Bounds, dirty map[Object]bool) {
	claims := make([]spec.Claim, 0, len(t.all))
	for _, c := range t.all {
		claims = append(claims, c.Claim)
	}
	t.refused = 0
	for i, why := range b.Refused(claims) {
		id := Object{Kind: Kind(claims[i].Kind), Namespace: namespace, Name: claims[i].Name}
		if why != "" {
			t.refused++
		}
		if q.refused[id] == why {
			continue
		}
		if dirty[id] = true; why == "" {
			delete(q.refused, id)
		} else {
			q.refused[id] = why
		}
	}
}

// claimOf returns the claim of an object; nil if its group is unknown. The shape of a Service is
// read again only if the Service or the group has changed, not its endpoints.
func (w *Cache) claimOf(id Object) *claim {
	name := w.groupOf(id)
	g := w.groups[name]
	if g == nil {
		return nil
	}
	c := &claim{tenant: tenant{name, id.Namespace}, group: g, Claim: spec.Claim{Kind: string(id.Kind), Name: id.Name}}
	switch o := w.objects[id].(type) {
	case *corev1.Service:
		c.service, c.Created = o, o.CreationTimestamp.Time
		if before := w.quotas.claims[id]; before != nil && before.service == o && before.group == g {
			c.shape = before.shape
		} else {
			c.shape = g.bounds.ShapeOf(o)
		}
		c.Usage = c.shape.Usage(w.quotas.endpoints[id])
	case *v1alpha1.LoadBalancer:
		c.Created, c.Usage = o.CreationTimestamp.Time, g.bounds.LoadBalancerUsage(o)
	}
	return c
}
