// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/spec"
)

// supply has the addresses of all networks, and the rules by which owners get them.
type supply struct {
	*alloc.Networks
	pools      []addressPool // in the order in which they are tried
	namespaces map[string]labels.Set
	groups     []groupRule
}

// addressPool is a pool and the objects that may use it.
type addressPool struct {
	alloc.Pool
	// Priority orders pools, the greatest first.
	Priority int32
	// Namespaces and Objects select by labels.
	Namespaces, Objects labels.Selector
	// RetainFor is how long released addresses are retained; 0 for not at all.
	RetainFor time.Duration
}

// groupRule is the part of a LoadBalancerGroup by which objects get no address.
type groupRule struct {
	group      types.UID
	generation int64
	filter     spec.Filter
	policy     spec.Policy
	spec.Bounds
}

// setPools replaces the pools, which have distinct names.
func (s *supply) setPools(pools []addressPool) {
	s.pools = slices.SortedFunc(slices.Values(pools), func(a, b addressPool) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	var supplies []alloc.Pool
	for _, p := range s.pools {
		supplies = append(supplies, p.Pool)
	}
	s.Untagged.SetPools(supplies)
}

// setNamespace sets the labels of a namespace that exists, or was deleted, and reports whether that is new.
func (s *supply) setNamespace(name string, now labels.Set, exists bool) (changed bool) {
	if before, known := s.namespaces[name]; known && exists && maps.Equal(before, now) {
		return false
	}
	if s.namespaces[name] = now; !exists {
		delete(s.namespaces, name)
	}
	return true
}

// setGroups replaces the groups, and reports whether they have changed.
func (s *supply) setGroups(groups []v1alpha1.LoadBalancerGroup) (changed bool) {
	groups = slices.SortedFunc(slices.Values(groups), func(a, b v1alpha1.LoadBalancerGroup) int { return cmp.Compare(a.Name, b.Name) })
	if slices.EqualFunc(groups, s.groups, func(g v1alpha1.LoadBalancerGroup, b groupRule) bool {
		return g.UID == b.group && g.Generation == b.generation
	}) {
		return false
	}
	s.groups = nil
	for i := range groups {
		g := &groups[i]
		filter, _ := spec.NewFilter(&g.Spec.Services) // one with an error selects nothing
		policy, _ := spec.NewPolicy(&g.Spec.LoadBalancers)
		s.groups = append(s.groups, groupRule{g.UID, g.Generation, filter, policy, spec.BoundsOf(g)})
	}
	return true
}

// allocate passes a request to the allocator of its network.
func (s *supply) allocate(q addressRequest) (alloc.Result, error) {
	if len(q.Families) == 0 {
		return s.In(q.Segment).Keep(s.request(q)), q.Invalid
	}
	if refused := s.refuse(q); refused != nil {
		return s.In(q.Segment).Keep(s.request(q)), refused
	}
	return s.In(q.Segment).Claim(s.request(q))
}

// request translates a request, with the pools that the owner may use.
func (s *supply) request(q addressRequest) alloc.Request {
	r := q.Request
	r.Pools = nil
	if q.Segment.Tagged() {
		r.Pools = []string{alloc.AnyAddress}
		return r
	}
	for _, p := range s.pools {
		if p.Namespaces.Matches(s.namespaces[q.Owner.Namespace]) && p.Objects.Matches(q.Labels) {
			r.Pools = append(r.Pools, p.Name)
		}
	}
	return r
}

// reasonBadSegment is why an object gets no address in a segment.
const reasonBadSegment = "SegmentNotAllowed"

// refuse returns an error for a request in a segment that no group that may serve it allows, or with more
// ports than all groups that may serve it allow.
func (s *supply) refuse(q addressRequest) (refused error) {
	selects := func(g groupRule) bool { return g.filter.Selects(q.Class, q.Labels, s.namespaces[q.Owner.Namespace]) }
	if q.Segment.Tagged() && !slices.ContainsFunc(s.groups, func(g groupRule) bool { return g.policy.Allows(q.Segment) && selects(g) }) {
		return refusal(reasonBadSegment, "%s isn't in spec.loadBalancers.segments of a LoadBalancerGroup for this object", q.Segment)
	}
	most := 0
	for _, g := range s.groups {
		if g.Ports > most && selects(g) {
			most, refused = g.Ports, nil
			if why := g.TooManyPorts(len(q.Ports)); why != "" {
				refused = refusal(reasonQuotaExceeded, "%s", why)
			}
		}
	}
	return refused
}

// held returns the addresses of a request's owner, IPv4 first.
func (s *supply) held(q addressRequest) (addresses []netip.Addr) {
	for _, h := range s.In(q.Segment).Of(q.Owner) {
		addresses = append(addresses, h.Address)
	}
	return addresses
}

// retentionOf returns how long an address is retained.
func (s *supply) retentionOf(object *v1alpha1.AssignedAddress) time.Duration {
	a, segment := addressIn(object)
	if segment.Tagged() {
		return 0
	}
	name := s.Untagged.PoolOf(a)
	if i := slices.IndexFunc(s.pools, func(p addressPool) bool { return p.Name == name }); i >= 0 {
		return s.pools[i].RetainFor
	}
	return spec.RetainFor(&v1alpha1.AddressPool{})
}
