// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Config is what a World knows of its own node.
type Config struct {
	// Node is the name of its Node.
	Node   string
	Limits dataplane.Limits
	// ASN is that of the node's BGP speaker; 0 without one.
	ASN uint32
	// TunnelEnds says that the node has tunnel end points, at which services in VXLAN
	// and Geneve segments get their packets.
	TunnelEnds bool
}

// World holds what one node needs to know of its cluster, and what follows from
// it. An object that is set or deleted makes only what depends on it due; Flush
// translates that. A World is not safe for concurrent use.
type World struct {
	self       string
	limits     dataplane.Limits
	asn        uint32
	tunnelEnds bool

	services  map[Object]*corev1.Service
	balancers map[Object]*v1alpha1.LoadBalancer
	groups    map[string]*group
	nodes     map[string]*node
	peers     map[string]*v1alpha1.BGPPeer
	pools     map[string]*v1alpha1.AddressPool
	secrets   map[string]*corev1.Secret
	// slices are those of a Service, by their names; owners is whose a slice is.
	slices map[Object]map[string]*slice
	owners map[Object]Object

	// grouped are the Services and LoadBalancers of a group, and byNodes those of
	// which nodes are backends.
	grouped map[string]map[Object]bool
	byNodes map[Object]bool
	// due are the Services and LoadBalancers to be translated anew.
	due       map[Object]bool
	routesDue bool

	register *register
	routes   *Routes
	problems map[Object][]string
	// healthPorts are those of Services that this node's group serves.
	healthPorts map[Object]HealthPort
}

// NewWorld returns an empty world.
func NewWorld(c Config) *World {
	return &World{
		self: c.Node, limits: c.Limits, asn: c.ASN, tunnelEnds: c.TunnelEnds,
		services: map[Object]*corev1.Service{}, balancers: map[Object]*v1alpha1.LoadBalancer{},
		groups: map[string]*group{}, nodes: map[string]*node{},
		peers: map[string]*v1alpha1.BGPPeer{}, pools: map[string]*v1alpha1.AddressPool{}, secrets: map[string]*corev1.Secret{},
		slices: map[Object]map[string]*slice{}, owners: map[Object]Object{},
		grouped: map[string]map[Object]bool{}, byNodes: map[Object]bool{},
		due: map[Object]bool{}, routesDue: true,
		register: newRegister(c.Limits.MaxServices), problems: map[Object][]string{},
		healthPorts: map[Object]HealthPort{},
	}
}

// name says what an object of the API is; false for those that no World holds.
func name(obj runtime.Object) (Object, bool) {
	switch o := obj.(type) {
	case *corev1.Service:
		return Object{KindService, o.Namespace, o.Name}, true
	case *discoveryv1.EndpointSlice:
		return Object{KindEndpointSlice, o.Namespace, o.Name}, true
	case *corev1.Node:
		return Object{Kind: KindNode, Name: o.Name}, true
	case *v1alpha1.LoadBalancerGroup:
		return Object{Kind: KindGroup, Name: o.Name}, true
	case *v1alpha1.LoadBalancer:
		return Object{KindLoadBalancer, o.Namespace, o.Name}, true
	case *v1alpha1.BGPPeer:
		return Object{Kind: KindPeer, Name: o.Name}, true
	case *v1alpha1.AddressPool:
		return Object{Kind: KindPool, Name: o.Name}, true
	case *corev1.Secret:
		return Object{Kind: KindSecret, Name: o.Name}, true // of the agents' namespace
	}
	return Object{}, false
}

// Set takes an object as it is now. The world keeps parts of it: it is not to be
// changed afterwards.
func (w *World) Set(obj runtime.Object) {
	id, known := name(obj)
	if !known {
		return
	}
	switch o := obj.(type) {
	case *corev1.Service:
		w.setService(id, o)
	case *discoveryv1.EndpointSlice:
		w.setSlice(id, o)
	case *corev1.Node:
		w.setNode(readNode(o))
	case *v1alpha1.LoadBalancerGroup:
		w.setGroup(id, readGroup(o))
	case *v1alpha1.LoadBalancer:
		w.regroup(id, w.groupOf(id), o.Status.Group)
		w.balancers[id], w.due[id] = o, true
	case *v1alpha1.BGPPeer:
		w.peers[id.Name], w.routesDue = o, true
	case *v1alpha1.AddressPool:
		w.pools[id.Name], w.routesDue = o, true
	case *corev1.Secret:
		w.secrets[id.Name], w.routesDue = o, true
	}
}

// Delete forgets an object.
func (w *World) Delete(id Object) {
	switch id.Kind {
	case KindService, KindLoadBalancer:
		w.regroup(id, w.groupOf(id), "")
		delete(w.services, id)
		delete(w.balancers, id)
		w.due[id] = true
	case KindEndpointSlice:
		w.dropSlice(id)
	case KindNode:
		w.dropNode(id.Name)
	case KindGroup:
		delete(w.groups, id.Name)
		delete(w.problems, id)
		maps.Copy(w.due, w.grouped[id.Name])
	case KindPeer:
		delete(w.peers, id.Name)
		w.routesDue = true
	case KindPool:
		delete(w.pools, id.Name)
		w.routesDue = true
	case KindSecret:
		delete(w.secrets, id.Name)
		w.routesDue = true
	}
}

// Names are the objects of a kind that the world holds, so that what is missing in
// a new list of them can be deleted.
func (w *World) Names(kind Kind) []Object {
	named := func(names ...string) (all []Object) {
		for _, n := range names {
			all = append(all, Object{Kind: kind, Name: n})
		}
		return all
	}
	switch kind {
	case KindService:
		return slices.Collect(maps.Keys(w.services))
	case KindEndpointSlice:
		return slices.Collect(maps.Keys(w.owners))
	case KindLoadBalancer:
		return slices.Collect(maps.Keys(w.balancers))
	case KindNode:
		return named(slices.Collect(maps.Keys(w.nodes))...)
	case KindGroup:
		return named(slices.Collect(maps.Keys(w.groups))...)
	case KindPeer:
		return named(slices.Collect(maps.Keys(w.peers))...)
	case KindPool:
		return named(slices.Collect(maps.Keys(w.pools))...)
	case KindSecret:
		return named(slices.Collect(maps.Keys(w.secrets))...)
	}
	return nil
}

// setService keeps only what is Fairlead's.
func (w *World) setService(id Object, svc *corev1.Service) {
	if !taken(svc) {
		if w.services[id] != nil {
			w.Delete(id)
		}
		return
	}
	w.regroup(id, w.groupOf(id), svc.Annotations[v1alpha1.AnnotationGroup])
	w.services[id], w.due[id] = svc, true
}

// groupOf is the group that serves a Service or a LoadBalancer.
func (w *World) groupOf(id Object) string {
	if svc := w.services[id]; svc != nil {
		return svc.Annotations[v1alpha1.AnnotationGroup]
	}
	if b := w.balancers[id]; b != nil {
		return b.Status.Group
	}
	return ""
}

func (w *World) regroup(id Object, from, to string) {
	if from == to {
		return
	}
	delete(w.grouped[from], id)
	if len(w.grouped[from]) == 0 {
		delete(w.grouped, from)
	}
	if to == "" {
		return
	}
	if w.grouped[to] == nil {
		w.grouped[to] = map[Object]bool{}
	}
	w.grouped[to][id] = true
}

func (w *World) setSlice(id Object, es *discoveryv1.EndpointSlice) {
	owner := Object{KindService, es.Namespace, es.Labels[discoveryv1.LabelServiceName]}
	if before, known := w.owners[id]; known && before != owner {
		w.dropSlice(id)
	}
	if owner.Name == "" {
		return // nobody's
	}
	if w.slices[owner] == nil {
		w.slices[owner] = map[string]*slice{}
	}
	w.slices[owner][id.Name], w.owners[id] = readSlice(es), owner
	w.dueIfTaken(owner)
}

func (w *World) dropSlice(id Object) {
	owner, known := w.owners[id]
	if !known {
		return
	}
	delete(w.owners, id)
	delete(w.slices[owner], id.Name)
	if len(w.slices[owner]) == 0 {
		delete(w.slices, owner)
	}
	w.dueIfTaken(owner)
}

func (w *World) dueIfTaken(svc Object) {
	if w.services[svc] != nil {
		w.due[svc] = true
	}
}

func (w *World) setNode(n *node) {
	before := w.nodes[n.name]
	if n.name != w.self {
		n.labels = nil
	} else if before == nil || before.zone != n.zone {
		w.allDue() // hints of zones
	}
	w.nodes[n.name] = n
	if !before.sameMember(n) {
		maps.Copy(w.due, w.byNodes)
	}
	w.routesDue = w.routesDue || n.name == w.self && (before == nil || !maps.Equal(before.labels, n.labels))
}

func (w *World) dropNode(name string) {
	if w.nodes[name] == nil {
		return
	}
	delete(w.nodes, name)
	maps.Copy(w.due, w.byNodes)
	if name == w.self {
		w.allDue()
		w.routesDue = true
	}
}

func (w *World) allDue() {
	for id := range w.services {
		w.due[id] = true
	}
	for id := range w.balancers {
		w.due[id] = true
	}
}

func (w *World) setGroup(id Object, g *group) {
	if before := w.groups[id.Name]; before != nil && before.equal(g) {
		return // its status counts what it serves, which is no news here
	}
	w.groups[id.Name] = g
	maps.Copy(w.due, w.grouped[id.Name])
	delete(w.problems, id)
	if g.problem != "" {
		w.problems[id] = []string{g.problem}
	}
}

// zone is this node's.
func (w *World) zone() string {
	if n := w.nodes[w.self]; n != nil {
		return n.zone
	}
	return ""
}

// Addresses are this node's internal ones; invalid where it has none of a family,
// or is not known.
func (w *World) Addresses() (four, six netip.Addr) {
	if n := w.nodes[w.self]; n != nil {
		return n.four, n.six
	}
	return netip.Addr{}, netip.Addr{}
}

// Leaving says why an agent that is told to end goes for good, and takes its
// services with it; empty if another one will follow on this node.
func (w *World) Leaving() string {
	n := w.nodes[w.self]
	switch {
	case n == nil:
		return "the node has been deleted"
	case n.leaving:
		return "the node is cordoned or shuts down"
	}
	for _, g := range w.groups {
		if g.has(w.self) {
			return ""
		}
	}
	if len(w.register.served) > 0 {
		return "" // others relay to it
	}
	return "the node is in no group"
}

// Count is how many Services and LoadBalancers there are for this node.
func (w *World) Count() int {
	n := 0
	for name, members := range w.grouped {
		if g := w.groups[name]; g != nil && g.has(w.self) {
			n += len(members)
		}
	}
	return n
}

// Problems are sorted by object.
func (w *World) Problems() []Problem {
	all := w.register.problems()
	for id, texts := range w.problems {
		for _, text := range texts {
			all = append(all, Problem{id, text})
		}
	}
	slices.SortStableFunc(all, func(a, b Problem) int { return a.Object.Compare(b.Object) })
	return all
}

// Change is what follows from objects that have changed.
type Change struct {
	// Changed are new services and those that differ from before.
	Changed []lb.Service
	// Removed are not to be served any more. Those of Left are served by other nodes
	// from now on: traffic has to be moved there first.
	Removed, Left []lb.VIP
	// Routes is nil if the peers and policies are as they were.
	Routes *Routes
	// whole says that Changed is all that is served.
	whole bool
}

// Empty reports whether there is nothing in it.
func (c *Change) Empty() bool {
	return len(c.Changed) == 0 && len(c.Removed) == 0 && len(c.Left) == 0 && c.Routes == nil
}

// Services are all that is served, sorted by VIP.
func (w *World) Services() []lb.Service { return w.register.services() }

// Flush translates what is due.
func (w *World) Flush() Change {
	for id := range w.due {
		w.translate(id)
	}
	clear(w.due)
	c := w.register.flush()
	if w.routesDue {
		w.routesDue = false
		if r := w.translateRoutes(); w.routes == nil || !r.equal(w.routes) {
			w.routes, c.Routes = r, r
		}
	}
	return c
}

// hasPod reports whether a Service has an endpoint on this node.
func (w *World) hasPod(svc Object) bool {
	for _, s := range w.slices[svc] {
		if slices.ContainsFunc(s.endpoints, func(e endpoint) bool { return e.node == w.self }) {
			return true
		}
	}
	return false
}

// translate makes one Service or LoadBalancer anew.
func (w *World) translate(id Object) {
	g := w.groups[w.groupOf(id)]
	t := translation{World: w, group: g}
	here := g != nil && g.has(w.self) && w.nodes[w.self] != nil
	claim := claims{object: id, moved: !here}
	if svc := w.services[id]; svc != nil {
		claim.created = svc.CreationTimestamp.Time
		claim.addresses = t.ingress(svc)
		t.problems, t.behind = nil, !here
		if here || g != nil && w.nodes[w.self] != nil {
			t.service(svc, g, w.slices[id])
		}
	}
	if b := w.balancers[id]; b != nil {
		claim.created = b.CreationTimestamp.Time
		if a, err := netip.ParseAddr(b.Status.Address); err == nil {
			claim.addresses = []netip.Addr{a}
		}
		if here {
			t.balancer(b)
		}
	}
	delete(w.healthPorts, id)
	if port, has := t.healthPort(id, here); has {
		w.healthPorts[id] = port
	}
	delete(w.byNodes, id)
	if t.byNodes {
		w.byNodes[id] = true
	}
	delete(w.problems, id)
	if len(t.problems) > 0 {
		w.problems[id] = t.problems
	}
	claim.services = t.services
	w.register.set(claim)
}
