// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
)

// tenant is a namespace whose objects a group serves.
type tenant struct{ group, namespace string }

// quotas decides which objects are refused because their namespaces use more than their groups
// allow: the same ones on every node, and as the controller does.
type quotas struct {
	// claims are those of all objects with a group, by tenant; tenants has the tenant of each.
	claims  map[tenant]map[Object]spec.Claim
	tenants map[Object]tenant
	// refused has the reasons.
	refused map[Object]string
	// endpoints are those of all Services.
	endpoints map[Object]spec.Endpoints
}

func newQuotas() quotas {
	return quotas{
		claims: map[tenant]map[Object]spec.Claim{}, tenants: map[Object]tenant{},
		refused: map[Object]string{}, endpoints: map[Object]spec.Endpoints{},
	}
}

// count adds the endpoints of a slice to those of a Service, or removes them.
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
	if all.Add(s.keys(), n); len(all) == 0 {
		delete(q.endpoints, owner)
	}
}

// set replaces the claim of an object; it has none without tenant.
func (q *quotas) set(id Object, who tenant, c spec.Claim) {
	if before, known := q.tenants[id]; known && before != who {
		delete(q.claims[before], id)
		if len(q.claims[before]) == 0 {
			delete(q.claims, before)
		}
		delete(q.tenants, id)
		delete(q.refused, id)
	}
	if who.group == "" {
		return
	}
	if q.claims[who] == nil {
		q.claims[who] = map[Object]spec.Claim{}
	}
	q.claims[who][id], q.tenants[id] = c, who
}

// applyQuotas decides on the tenants of dirty objects, and marks the objects with another decision than
// before.
func (w *Cache) applyQuotas() {
	q, changed := &w.quotas, map[tenant]bool{}
	for id := range w.dirty {
		changed[q.tenants[id]] = true
		who, c := w.claimOf(id)
		q.set(id, who, c)
		changed[who] = true
	}
	for who := range changed {
		g := w.groups[who.group]
		if g == nil {
			continue
		}
		claims := make([]spec.Claim, 0, len(q.claims[who]))
		for c := range maps.Values(q.claims[who]) {
			claims = append(claims, c)
		}
		for i, why := range g.bounds.Refused(claims) {
			id := Object{Kind(claims[i].Kind), who.namespace, claims[i].Name}
			if q.refused[id] == why {
				continue
			}
			if w.dirty[id] = true; why == "" {
				delete(q.refused, id)
			} else {
				q.refused[id] = why
			}
		}
	}
}

// claimOf returns the claim of an object; no tenant if its group is unknown.
func (w *Cache) claimOf(id Object) (who tenant, c spec.Claim) {
	g := w.groups[w.groupOf(id)]
	if g == nil {
		return who, c
	}
	var meta metav1.Object
	switch o := w.objects[id].(type) {
	case *corev1.Service:
		meta, c.Usage = o, g.bounds.ServiceUsage(o, w.quotas.endpoints[id])
	case *v1alpha1.LoadBalancer:
		meta, c.Usage = o, g.bounds.LoadBalancerUsage(o)
	default:
		return who, c
	}
	c.Kind, c.Name, c.Created = string(id.Kind), id.Name, meta.GetCreationTimestamp().Time
	return tenant{w.groupOf(id), id.Namespace}, c
}
