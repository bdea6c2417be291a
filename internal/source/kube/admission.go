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

// pool is an AddressPool, reduced to the objects that may have its addresses.
type pool struct {
	addresses           *netipx.IPSet
	namespaces, objects labels.Selector
}

// readPool reads a pool as the controller does, which gives no addresses of invalid ones.
func readPool(p *v1alpha1.AddressPool) *pool {
	ranges, err := spec.PoolRanges(p)
	namespaces, bad := spec.Selector(p.Spec.NamespaceSelector)
	objects, worse := spec.Selector(p.Spec.ServiceSelector)
	if err != nil || bad != nil || worse != nil {
		return &pool{addresses: &netipx.IPSet{}}
	}
	var b netipx.IPSetBuilder
	for _, r := range ranges {
		b.AddRange(r)
	}
	set, _ := b.IPSet() // of valid ranges
	return &pool{set, namespaces, objects}
}

// setPool translates all objects again if the pool's specification changed: its status often
// does.
func (w *Cache) setPool(id Object, p *v1alpha1.AddressPool) {
	if before, known := w.objects[id].(*v1alpha1.AddressPool); known && reflect.DeepEqual(before.Spec, p.Spec) {
		return
	}
	w.objects[id], w.pools[id.Name] = p, readPool(p)
	w.routesDirty, w.networksDirty = true, true
	w.allDirty()
}

func (w *Cache) deletePool(id Object) {
	delete(w.objects, id)
	delete(w.pools, id.Name)
	w.routesDirty, w.networksDirty = true, true
	w.allDirty()
}

// setNamespace sets the labels of a namespace.
func (w *Cache) setNamespace(name string, set labels.Set) {
	if before, known := w.namespaces[name]; known && maps.Equal(before, set) {
		return
	}
	w.namespaces[name] = set
	w.namespaceDirty(name)
}

func (w *Cache) deleteNamespace(name string) {
	delete(w.namespaces, name)
	w.namespaceDirty(name)
}

func (w *Cache) namespaceDirty(name string) {
	for id := range w.objects {
		if id.Namespace == name {
			w.dirty[id] = true
		}
	}
}

// setClusterIPs sets the cluster IPs of a Service; nil if it is deleted.
func (w *Cache) setClusterIPs(id Object, addresses []netip.Addr) {
	if slices.Equal(w.clusterIPs[id], addresses) {
		return
	}
	if w.clusterIPs[id] = addresses; len(addresses) == 0 {
		delete(w.clusterIPs, id)
	}
	w.networksDirty = true
}

// updateNetworks builds the cluster's networks again if they changed, and has LoadBalancers,
// whose policies refer to them, translated again. Services refer to pools only.
func (w *Cache) updateNetworks() {
	if !w.networksDirty {
		return
	}
	w.networksDirty = false
	var (
		nodes, services []netip.Addr
		pods            []netip.Prefix
		pools           []netipx.IPRange
	)
	for _, n := range w.nodes {
		nodes, pods = append(nodes, n.addresses...), append(pods, n.pods...)
	}
	for _, addresses := range w.clusterIPs {
		services = append(services, addresses...)
	}
	for id, obj := range w.objects {
		switch o := obj.(type) {
		case *v1alpha1.AddressPool:
			ranges, _ := spec.PoolRanges(o)
			pools = append(pools, ranges...)
		case *v1alpha1.LoadBalancer:
			w.dirty[id] = true
		}
	}
	w.networks = spec.NewNetworks(nodes, services, pods, pools)
}

// admit returns the group in an object's status, nil if it is unknown or may not serve the
// object: who may write statuses only can't have others' nodes announce an address. Nodes of
// the group have it as a problem.
func (w *Cache) admit(id Object) (*group, []string) {
	name := w.groupOf(id)
	g := w.groups[name]
	if g == nil {
		return nil, nil
	}
	obj, class := w.objects[id], ""
	if svc, is := obj.(*corev1.Service); is {
		class = deref(svc.Spec.LoadBalancerClass)
	}
	switch {
	case g.filter.Selects(class, obj.GetLabels(), w.namespaces[id.Namespace]):
		return g, nil
	case !g.has(w.Node):
		return nil, nil
	}
	return nil, []string{fmt.Sprintf("LoadBalancerGroup %s doesn't select it: not served", name)}
}

// inPool reports whether an AddressPool for an object has an address.
func (w *Cache) inPool(obj metav1.Object, a netip.Addr) bool {
	for _, p := range w.pools {
		if p.addresses.Contains(a) && p.namespaces.Matches(w.namespaces[obj.GetNamespace()]) && p.objects.Matches(labels.Set(obj.GetLabels())) {
			return true
		}
	}
	return false
}
