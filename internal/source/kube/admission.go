// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
)

// pool is an AddressPool, with the objects that may have its addresses.
type pool struct {
	*v1alpha1.AddressPool
	addresses           *netipx.IPSet
	namespaces, objects labels.Selector
}

// readPool reads a pool as the controller does, which gives no addresses of invalid ones.
func readPool(p *v1alpha1.AddressPool) *pool {
	ranges, err := spec.PoolRanges(p)
	namespaces, bad := spec.Selector(p.Spec.NamespaceSelector)
	objects, worse := spec.Selector(p.Spec.ServiceSelector)
	if err != nil || bad != nil || worse != nil {
		return &pool{AddressPool: p, addresses: &netipx.IPSet{}}
	}
	var b netipx.IPSetBuilder
	for _, r := range ranges {
		b.AddRange(r)
	}
	set, _ := b.IPSet() // of valid ranges
	return &pool{p, set, namespaces, objects}
}

// admission has the rules of administrators: which objects may have which addresses, and which a group serves.
type admission struct {
	pools map[string]*pool
	// poolsChanged says that pools have changed since the last Flush.
	poolsChanged bool
	// namespaces has the labels of each.
	namespaces map[string]labels.Set
}

// setPool adds or replaces a pool. A change of its status only is none.
func (a *admission) setPool(p *v1alpha1.AddressPool) {
	if before := a.pools[p.Name]; before == nil || !reflect.DeepEqual(before.Spec, p.Spec) {
		a.pools[p.Name], a.poolsChanged = readPool(p), true
	}
}

func (a *admission) deletePool(name string) {
	delete(a.pools, name)
	a.poolsChanged = true
}

// setNamespace sets the labels of a namespace, and reports whether they have changed.
func (a *admission) setNamespace(name string, set labels.Set) bool {
	before, known := a.namespaces[name]
	a.namespaces[name] = set
	return !known || !maps.Equal(before, set)
}

// inPool reports whether an AddressPool for an object has an address.
func (a *admission) inPool(obj metav1.Object, address netip.Addr) bool {
	for _, p := range a.pools {
		if p.addresses.Contains(address) && p.namespaces.Matches(a.namespaces[obj.GetNamespace()]) && p.objects.Matches(labels.Set(obj.GetLabels())) {
			return true
		}
	}
	return false
}

// mayServe reports whether a group selects an object.
func (a *admission) mayServe(g *group, obj metav1.Object) bool {
	class := ""
	if svc, is := obj.(*corev1.Service); is {
		class = deref(svc.Spec.LoadBalancerClass)
	}
	return g.filter.Selects(class, obj.GetLabels(), a.namespaces[obj.GetNamespace()])
}

// networks are the networks of the cluster, with the additions and removals since the last Flush.
type networks struct {
	*spec.Networks
	// clusterIPs are the cluster IPs of all Services.
	clusterIPs map[Object][]netip.Addr

	changed     map[netip.Addr]bool
	changedPods []netip.Prefix
}

func newNetworks() networks {
	return networks{Networks: spec.NewNetworks(), clusterIPs: map[Object][]netip.Addr{}, changed: map[netip.Addr]bool{}}
}

// setClusterIPs sets the cluster IPs of a Service; nil if it is deleted.
func (n *networks) setClusterIPs(id Object, addresses []netip.Addr) {
	before := n.clusterIPs[id]
	if slices.Equal(before, addresses) {
		return
	}
	n.Service(before, false)
	n.Service(addresses, true)
	n.change(before)
	n.change(addresses)
	if n.clusterIPs[id] = addresses; len(addresses) == 0 {
		delete(n.clusterIPs, id)
	}
}

// setNode replaces the addresses of a node, and the CIDRs of its pods; nil if there was or is none.
func (n *networks) setNode(before, now *node) {
	if before != nil && now != nil && slices.Equal(before.addresses, now.addresses) && slices.Equal(before.pods, now.pods) {
		return
	}
	for _, one := range []*node{before, now} {
		if one != nil {
			n.Node(one.addresses, one.pods, one == now)
			n.change(one.addresses)
			n.changedPods = append(n.changedPods, one.pods...)
		}
	}
}

func (n *networks) change(addresses []netip.Addr) {
	for _, a := range addresses {
		n.changed[a] = true
	}
}

// hasChanged reports whether a change concerns packets to an address.
func (n *networks) hasChanged(a netip.Addr) bool {
	return n.changed[a] || slices.ContainsFunc(n.changedPods, func(p netip.Prefix) bool { return p.Contains(a) })
}

// updateNetworks marks the objects that depend on changed pools and networks: all, or LoadBalancers with members there,
// by their policies, and Services with endpoints at addresses of nodes that are in a pool.
func (w *Cache) updateNetworks() {
	if w.admission.poolsChanged {
		w.admission.poolsChanged, w.routing.dirty = false, true
		w.allDirty()
		var ranges []netipx.IPRange
		for _, p := range w.admission.pools {
			valid, _ := spec.PoolRanges(p.AddressPool)
			ranges = append(ranges, valid...)
		}
		w.networks.SetPools(ranges)
	}
	if len(w.networks.changed)+len(w.networks.changedPods) == 0 {
		return
	}
	w.markMembers(w.networks.hasChanged)
	for a := range w.networks.changed {
		if w.networks.InPool(a) {
			w.allocated.changed[a] = true
		}
	}
	w.networks.changed, w.networks.changedPods = map[netip.Addr]bool{}, nil
}

// admit returns the group in an object's status, nil if it is unknown or may not serve the object:
// write access to status must not let a tenant announce on other nodes. Nodes of the group have it
// as a problem.
func (w *Cache) admit(id Object) (*group, []string) {
	name := w.groupOf(id)
	g := w.groups[name]
	if g == nil {
		return nil, nil
	}
	switch {
	case w.admission.mayServe(g, w.objects[id]):
		return g, nil
	case !g.has(w.Node):
		return nil, nil
	}
	return nil, []string{fmt.Sprintf("LoadBalancerGroup %s doesn't select it: not served", name)}
}
