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

// allocated are the addresses of all VIPs, whichever group serves them. Backends at such an
// address would have balancers send packets to each other, until their TTL ends.
type allocated struct {
	of map[Object][]netip.Addr
	// users counts the objects with an address.
	users map[netip.Addr]int
	// changed are the addresses at which backends may have become usable or unusable: added and
	// removed VIPs, and addresses of nodes in pools.
	changed map[netip.Addr]bool
}

func newAllocated() allocated {
	return allocated{of: map[Object][]netip.Addr{}, users: map[netip.Addr]int{}, changed: map[netip.Addr]bool{}}
}

// set replaces the addresses of an object.
func (a *allocated) set(id Object, addresses []netip.Addr) {
	if slices.Equal(a.of[id], addresses) {
		return
	}
	for _, old := range a.of[id] {
		if a.users[old]--; a.users[old] == 0 {
			delete(a.users, old)
			a.changed[old] = true
		}
	}
	delete(a.of, id)
	if len(addresses) == 0 {
		return
	}
	a.of[id] = addresses
	for _, added := range addresses {
		if a.users[added]++; a.users[added] == 1 {
			a.changed[added] = true
		}
	}
}

// allocate reads the addresses of dirty objects, and marks the objects with backends at
// addresses that have become VIPs, or no longer are.
func (w *Cache) allocate() {
	for id := range w.dirty {
		w.allocated.set(id, allocatedTo(w.objects[id]))
	}
	if len(w.allocated.changed) == 0 {
		return
	}
	changed := w.allocated.changed
	for owner, all := range w.slices {
		if w.objects[owner] == nil {
			continue // isn't served
		}
		for _, s := range all {
			if slices.ContainsFunc(s.endpoints, func(e endpoint) bool { return changed[e.address] }) {
				w.markDirty(owner)
			}
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

// allocatedTo returns the addresses of an object, without those in overlay segments.
func allocatedTo(obj metav1.Object) (addresses []netip.Addr) {
	if spec.ServedBy(obj) == "" {
		return nil
	}
	switch o := obj.(type) {
	case *corev1.Service:
		for _, in := range o.Status.LoadBalancer.Ingress {
			if a := parseAddress(in.IP); lb.CheckAddress(a) == nil {
				addresses = append(addresses, a)
			}
		}
	case *v1alpha1.LoadBalancer:
		overlay := o.Spec.Segment != nil && o.Spec.Segment.Type != "vlan"
		if a := parseAddress(o.Status.Address); lb.CheckAddress(a) == nil && !overlay {
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
