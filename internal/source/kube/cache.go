// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/owner"
	"fairlead.io/fairlead/internal/spec"
)

// Config describes the node of a Cache.
type Config struct {
	// Node is the name of its Node object.
	Node   string
	Limits dataplane.Limits
	// MaxServices and MaxBackends are the capacities of the node's data plane: of services,
	// and of the backends of all services together.
	MaxServices, MaxBackends int
	// ASN is the AS number of the node's BGP speaker; 0 without one.
	ASN uint32
	// TunnelEnds says that the node has tunnel end points for services in VXLAN and Geneve
	// segments.
	TunnelEnds bool
	// LoadBalancersOnly says that no Services are served: only their cluster IPs matter.
	LoadBalancersOnly bool
}

// Cache has the objects that a node needs, and the services and routes translated from them.
// A changed object marks only dependent objects as dirty; Flush translates those. A Cache
// is not safe for concurrent use.
type Cache struct {
	Config

	// objects are Services and LoadBalancers.
	objects map[Object]metav1.Object
	groups  map[string]*group
	nodes   map[string]*node
	slices  serviceSlices

	// byNodes are the Services with nodes as backends, own the Services and LoadBalancers
	// whose group has this node.
	byNodes, own map[Object]bool
	// dirty are the Services and LoadBalancers to translate.
	dirty map[Object]bool

	admission admission
	// networks has the ranges of pools as of the last Flush.
	networks networks

	vips *owner.VIPs
	// marks has the kernel's firewall marks of objects.
	marks *lb.Marks[Object]
	// allocated are the addresses of Services and LoadBalancers of all groups.
	allocated allocated
	routing   routing
	problems  map[Object][]string
	// healthPorts are the health ports of Services that this node's group serves.
	healthPorts map[Object]HealthPort
	// newest are the versions of the newest Service of Fairlead and of the newest LoadBalancer.
	newest v1alpha1.ObservedVersions
}

// NewCache returns an empty cache.
func NewCache(c Config) *Cache {
	return &Cache{
		Config:  c,
		objects: map[Object]metav1.Object{}, groups: map[string]*group{}, nodes: map[string]*node{},
		slices:  serviceSlices{all: map[Object]map[string]*slice{}, owners: map[Object]Object{}},
		byNodes: map[Object]bool{}, own: map[Object]bool{},
		dirty: map[Object]bool{}, routing: newRouting(c.ASN),
		vips: owner.New(c.MaxServices, c.MaxBackends), marks: lb.NewMarks[Object](), allocated: newAllocated(), problems: map[Object][]string{},
		healthPorts: map[Object]HealthPort{},
		admission:   admission{pools: map[string]*pool{}, namespaces: map[string]labels.Set{}},
		networks:    newNetworks(),
	}
}

// name identifies an object, whose type has the name of its kind.
func name(obj metav1.Object) Object {
	id := Object{Kind: Kind(reflect.TypeOf(obj).Elem().Name()), Namespace: obj.GetNamespace(), Name: obj.GetName()}
	if id.Kind == KindSecret {
		id.Namespace = "" // the agents'
	}
	return id
}

// Set adds or replaces an object, which must not be changed afterwards. Objects of kinds without a
// Kind constant are ignored.
func (w *Cache) Set(obj metav1.Object) {
	id := name(obj)
	switch o := obj.(type) {
	case *corev1.Service:
		w.setService(id, o)
	case *discoveryv1.EndpointSlice:
		w.markDirty(w.slices.set(id, o)...)
	case *corev1.Node:
		w.setNode(readNode(o))
	case *corev1.Namespace:
		if w.admission.setNamespace(o.Name, o.Labels) {
			w.namespaceDirty(o.Name)
		}
	case *v1alpha1.LoadBalancerGroup:
		w.setGroup(id, readGroup(o))
	case *v1alpha1.LoadBalancer:
		w.objects[id], w.dirty[id] = o, true
		w.newest.LoadBalancers = newer(w.newest.LoadBalancers, o.ResourceVersion)
	case *v1alpha1.AddressPool:
		w.admission.setPool(o)
	case *v1alpha1.BGPPeer:
		w.routing.peers[o.Name], w.routing.dirty = o, true
	case *corev1.Secret:
		w.routing.secrets[o.Name], w.routing.dirty = o, true
	}
}

// Delete removes an object.
func (w *Cache) Delete(id Object) {
	switch id.Kind {
	case KindService, KindLoadBalancer:
		delete(w.objects, id)
		w.dirty[id] = true
		w.networks.setClusterIPs(id, nil)
	case KindNamespace:
		delete(w.admission.namespaces, id.Name)
		w.namespaceDirty(id.Name)
	case KindEndpointSlice:
		w.markDirty(w.slices.delete(id))
	case KindNode:
		w.deleteNode(id.Name)
	case KindGroup:
		delete(w.groups, id.Name)
		delete(w.problems, id)
		w.groupDirty(id.Name)
		w.routing.dirty = true
	case KindPool:
		w.admission.deletePool(id.Name)
	case KindPeer:
		delete(w.routing.peers, id.Name)
		w.routing.dirty = true
	case KindSecret:
		delete(w.routing.secrets, id.Name)
		w.routing.dirty = true
	}
}

// Names returns the objects of a kind, in any order. Services that aren't Fairlead's are among them
// if they have cluster IPs.
func (w *Cache) Names(kind Kind) (names []Object) {
	switch kind {
	case KindService:
		names = slices.Collect(maps.Keys(w.networks.clusterIPs))
		for id := range w.objects {
			if id.Kind == kind && w.networks.clusterIPs[id] == nil {
				names = append(names, id)
			}
		}
		return names
	case KindEndpointSlice:
		return slices.Collect(maps.Keys(w.slices.owners))
	case KindNode:
		return named(kind, w.nodes)
	case KindGroup:
		return named(kind, w.groups)
	case KindNamespace:
		return named(kind, w.admission.namespaces)
	case KindPool:
		return named(kind, w.admission.pools)
	case KindPeer:
		return named(kind, w.routing.peers)
	case KindSecret:
		return named(kind, w.routing.secrets)
	default:
		for id := range w.objects {
			if id.Kind == kind {
				names = append(names, id)
			}
		}
		return names
	}
}

func named[V any](kind Kind, all map[string]V) (objects []Object) {
	for n := range all {
		objects = append(objects, Object{Kind: kind, Name: n})
	}
	return objects
}

// setService ignores Services that aren't Fairlead's.
func (w *Cache) setService(id Object, svc *corev1.Service) {
	switch {
	case isOurs(svc) && !w.LoadBalancersOnly:
		w.objects[id], w.dirty[id] = svc, true
		w.newest.Services = newer(w.newest.Services, svc.ResourceVersion)
	case w.objects[id] != nil:
		w.Delete(id)
	}
	w.networks.setClusterIPs(id, spec.ClusterIPs(svc))
}

// newer returns the newer one of two versions of the same kind; of versions without an order, as in
// files, the second.
func newer(a, b string) string {
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil && order > 0 {
		return a
	}
	return b
}

// groupOf returns the group of a Service or LoadBalancer.
func (w *Cache) groupOf(id Object) string { return spec.ServedBy(w.objects[id]) }

// groupDirty marks the Services and LoadBalancers of a group.
func (w *Cache) groupDirty(group string) {
	for id := range w.objects {
		if w.groupOf(id) == group {
			w.dirty[id] = true
		}
	}
}

// namespaceDirty marks the Services and LoadBalancers of a namespace.
func (w *Cache) namespaceDirty(name string) {
	for id := range w.objects {
		if id.Namespace == name {
			w.dirty[id] = true
		}
	}
}

// markDirty marks Services, if they are Fairlead's.
func (w *Cache) markDirty(services ...Object) {
	for _, svc := range services {
		if w.objects[svc] != nil {
			w.dirty[svc] = true
		}
	}
}

func (w *Cache) setNode(n *node) {
	before := w.nodes[n.name]
	if n.name != w.Node {
		n.labels, n.hops, n.boot = nil, nil, ""
	} else {
		w.newest.BootID = n.boot
		if before == nil || before.zone != n.zone {
			w.allDirty() // hints of zones
		}
	}
	w.nodes[n.name] = n
	w.networks.setNode(before, n)
	if !before.sameMember(n) {
		maps.Copy(w.dirty, w.byNodes)
	}
	w.routing.dirty = w.routing.dirty || n.name == w.Node && (before == nil || !before.sameRoutes(n))
}

func (w *Cache) deleteNode(name string) {
	if w.nodes[name] == nil {
		return
	}
	w.networks.setNode(w.nodes[name], nil)
	delete(w.nodes, name)
	maps.Copy(w.dirty, w.byNodes)
	if name == w.Node {
		w.allDirty()
		w.routing.dirty = true
	}
}

// allDirty marks all Services and LoadBalancers.
func (w *Cache) allDirty() {
	for id := range w.objects {
		w.dirty[id] = true
	}
}

func (w *Cache) setGroup(id Object, g *group) {
	if before := w.groups[id.Name]; before != nil && reflect.DeepEqual(before, g) {
		return // only counters in its status have changed
	}
	w.groups[id.Name] = g
	w.groupDirty(id.Name)
	w.routing.dirty = true
	delete(w.problems, id)
	if g.problem != "" {
		w.problems[id] = []string{g.problem}
	}
}

// self returns this node; the zero node if it is unknown.
func (w *Cache) self() *node { return cmp.Or(w.nodes[w.Node], &node{}) }

// Addresses returns this node's internal addresses; invalid if it has none of a family or
// is unknown.
func (w *Cache) Addresses() (four, six netip.Addr) { return w.self().four, w.self().six }

// Leaving returns why no other agent will follow on this node; empty if one will.
func (w *Cache) Leaving() string {
	n := w.nodes[w.Node]
	switch {
	case n == nil:
		return "node deleted"
	case n.draining:
		return "node cordoned or shutting down"
	}
	for _, g := range w.groups {
		if g.has(w.Node) {
			return ""
		}
	}
	if !w.vips.Empty() {
		return "" // other nodes forward to it
	}
	return "node in no group"
}

// Count returns the number of Services and LoadBalancers for this node.
func (w *Cache) Count() int { return len(w.own) }

// Problems returns the problems of all objects, sorted by object.
func (w *Cache) Problems() []v1alpha1.NodeProblem {
	all := w.vips.Problems()
	for _, some := range []map[Object][]string{w.problems, w.routing.problems} {
		for id, texts := range some {
			for _, text := range texts {
				all = append(all, v1alpha1.NodeProblem{Object: id.String(), Message: text})
			}
		}
	}
	source.SortProblems(all)
	return all
}

// Change is the difference to the services and routes of the last Flush.
type Change struct {
	// Update has no routes.
	source.Update
	// Routes is nil if peers and policies are unchanged.
	Routes *Routes
	// Newest are the versions of the newest objects that it covers.
	Newest v1alpha1.ObservedVersions
}

// Empty reports whether nothing has changed.
func (c *Change) Empty() bool {
	return len(c.Changed) == 0 && len(c.Removed) == 0 && len(c.Leaving) == 0 && c.Routes == nil
}

// Services returns all services, sorted by VIP.
func (w *Cache) Services() []lb.Service { return w.vips.Services() }

// Flush translates dirty objects, and returns the changes since the last call.
func (w *Cache) Flush() Change {
	w.updateNetworks()
	w.allocate()
	for id := range w.dirty {
		w.translate(id)
	}
	clear(w.dirty)
	return Change{
		Update: w.vips.Flush(), Newest: w.newest,
		Routes: w.routing.flush(w.nodes[w.Node], w.admission.pools, w.groups, w.allocated.served),
	}
}

// translate translates one Service or LoadBalancer.
func (w *Cache) translate(id Object) {
	g, problems := w.admit(id)
	t := translation{Cache: w, group: g, problems: problems, vips: map[lb.VIP]bool{}, names: map[string]lb.VIP{}}
	delete(w.own, id)
	if g != nil && g.has(w.Node) {
		w.own[id] = true
	}
	here := w.own[id] && w.nodes[w.Node] != nil
	claims := owner.Claims{Object: id, Moved: !here}
	if spec.ServedBy(w.objects[id]) != "" {
		claims.Addresses = addressesOf(w.objects[id])
	}
	delete(w.healthPorts, id)
	switch o := w.objects[id].(type) {
	case *corev1.Service:
		claims.Created = o.CreationTimestamp.Time
		t.relayTarget = !here
		if here || g != nil && w.nodes[w.Node] != nil {
			t.service(o, g, w.slices.all[id])
		}
		if port := o.Spec.HealthCheckNodePort; here && port > 0 && port <= math.MaxUint16 {
			w.healthPorts[id] = HealthPort{Object: id, Port: uint16(port), Local: w.slices.readyOn(id, w.Node)}
		}
	case *v1alpha1.LoadBalancer:
		claims.Created = o.CreationTimestamp.Time
		if here {
			t.balancer(o)
		}
	}
	t.allotMark(id)
	delete(w.byNodes, id)
	if t.byNodes {
		w.byNodes[id] = true
	}
	delete(w.problems, id)
	if len(t.problems) > 0 {
		w.problems[id] = t.problems
	}
	claims.Services = t.services
	w.vips.Set(claims)
}
