// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
)

// allocated are the places of all VIPs that a node could be made to serve, of whichever group.
// Backends there would have balancers send packets to each other, until their TTL ends. An address
// that only a status claims is none: it would take the backends of others out.
type allocated struct {
	of map[Object][]spec.Place
	// groups are the groups of objects with one.
	groups map[Object]string
	// users counts the objects with a place.
	users map[spec.Place]int
	// changed are the addresses at which backends may have become usable or unusable: added and
	// removed VIPs, and addresses of nodes in pools.
	changed map[netip.Addr]bool
}

func newAllocated() allocated {
	return allocated{of: map[Object][]spec.Place{}, groups: map[Object]string{}, users: map[spec.Place]int{}, changed: map[netip.Addr]bool{}}
}

// served yields the addresses of all objects outside of segments, with their groups.
func (a *allocated) served(yield func(group string, addresses []netip.Addr) bool) {
	for id, places := range a.of {
		var addresses []netip.Addr
		for _, p := range places {
			if !p.Segment.Tagged() {
				addresses = append(addresses, p.Address)
			}
		}
		if !yield(a.groups[id], addresses) {
			return
		}
	}
}

// set replaces the places and the group of an object, and reports whether they have changed.
func (a *allocated) set(id Object, places []spec.Place, group string) (changed bool) {
	changed = a.groups[id] != group
	if a.groups[id] = group; group == "" {
		delete(a.groups, id)
	}
	if slices.Equal(a.of[id], places) {
		return changed
	}
	for _, old := range a.of[id] {
		if a.users[old]--; a.users[old] == 0 {
			delete(a.users, old)
			a.changed[old.Address] = true
		}
	}
	delete(a.of, id)
	if len(places) == 0 {
		return true
	}
	a.of[id] = places
	for _, added := range places {
		if a.users[added]++; a.users[added] == 1 {
			a.changed[added.Address] = true
		}
	}
	return true
}

// allocate reads the addresses of dirty objects, and marks the objects with backends at
// addresses that have become VIPs, or no longer are. Aggregates depend on addresses and groups.
func (w *Cache) allocate() {
	for id := range w.dirty {
		if w.allocated.set(id, w.placesOf(id), w.groupOf(id)) {
			w.routing.dirty = true
		}
	}
	if len(w.allocated.changed) == 0 {
		return
	}
	changed := w.allocated.changed
	for id := range w.objects {
		if w.slices.contain(id, func(e *endpoint) bool { return changed[e.address] }) {
			w.dirty[id] = true
		}
	}
	w.markMembers(func(a netip.Addr) bool { return changed[a] })
	clear(changed)
}

// markMembers marks the LoadBalancers with a member at one of these addresses.
func (w *Cache) markMembers(at func(netip.Addr) bool) {
	for id, obj := range w.objects {
		if b, is := obj.(*v1alpha1.LoadBalancer); is && !w.dirty[id] && hasMember(b, at) {
			w.dirty[id] = true
		}
	}
}

// hasMember reports whether packets or probes for a member of a LoadBalancer go to one of these
// addresses.
func hasMember(b *v1alpha1.LoadBalancer, at func(netip.Addr) bool) bool {
	for i := range b.Spec.Pools {
		for _, m := range b.Spec.Pools[i].Members {
			if at(parseAddress(string(cmp.Or(m.TunnelEnd, m.Address)))) || at(parseAddress(string(m.MonitorAddress))) {
				return true
			}
		}
	}
	return false
}

// placesOf returns the places of an object's VIPs: its group selects it, and a pool for it has the
// address, or the group allows the segment.
func (w *Cache) placesOf(id Object) (places []spec.Place) {
	g, _ := w.admit(id)
	if g == nil {
		return nil
	}
	var segment lb.Segment
	if b, is := w.objects[id].(*v1alpha1.LoadBalancer); is {
		_, segment, _ = spec.AddressRequest(b)
	}
	for _, a := range addressesOf(w.objects[id]) {
		if segment.Tagged() && g.policy.Allows(segment) || !segment.Tagged() && w.admission.inPool(w.objects[id], a) {
			places = append(places, spec.PlaceOf(segment, a))
		}
	}
	return places
}

// addressesOf returns the addresses in the status of an object.
func addressesOf(obj metav1.Object) (addresses []netip.Addr) {
	switch o := obj.(type) {
	case *corev1.Service:
		for _, in := range o.Status.LoadBalancer.Ingress {
			if a := parseAddress(in.IP); lb.CheckAddress(a) == nil {
				addresses = append(addresses, a)
			}
		}
	case *v1alpha1.LoadBalancer:
		if a := parseAddress(o.Status.Address); lb.CheckAddress(a) == nil {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// parseAddress returns the zero address for bad ones.
func parseAddress(text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return a
}
