// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/fuzzrand"
)

// chooser makes objects of choices that a fuzzer, or chance, has.
type chooser struct {
	random *rand.Rand
	// namespace is where objects are, addresses are those in their statuses.
	namespace string
	addresses []string
}

func newChooser(seed uint64) chooser {
	return chooser{rand.New(rand.NewPCG(seed, 0)), "d", []string{"198.51.100.1", "198.51.100.2", "2001:db8::1"}}
}

func (c chooser) n(most int) int { return c.random.IntN(most) }

func (c chooser) of(texts ...string) string { return texts[c.n(len(texts))] }

func (c chooser) flag() *bool {
	return []*bool{nil, new(false), new(true)}[c.n(3)]
}

// object makes an object of any kind, valid or not.
func (c chooser) object() runtime.Object {
	if c.n(9) < 5 {
		return c.namespaced()
	}
	return c.global()
}

// namespaced makes an object of a tenant, global one of an administrator.
func (c chooser) namespaced() runtime.Object {
	switch c.n(5) {
	case 0, 1:
		return c.service()
	case 2, 3:
		return c.slice()
	default:
		return c.balancer()
	}
}

func (c chooser) global() runtime.Object {
	switch c.n(4) {
	case 0:
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.of("lb1", "lb2", "n3"), Labels: map[string]string{corev1.LabelTopologyZone: c.of("a", "b", "")}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionStatus(c.of("True", "False"))}}
		n.Annotations = map[string]string{"fairlead.io/next-hops": c.of("", "300=10.0.5.11", "300=fd00:5::11,301=10.0.6.11", "x")}
		n.Spec.PodCIDRs = []string{c.of("10.0.0.0/30", "10.244.0.0/24", "x")}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: c.of("192.0.2.1", "192.0.2.2", "10.0.0.1", "198.51.100.1", "::1", "x")}}
		return n
	case 1:
		g := &v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: c.of("g", "h")}}
		g.Status.Nodes = []v1alpha1.GroupNode{{Name: c.of("lb1", "lb1", "lb2")}}
		g.Spec.DataPlane.Forward = c.of("", "nat", "dsr", "ipip", "x")
		if c.n(2) == 0 {
			g.Spec.DataPlane.HealthCheck = &v1alpha1.HealthCheck{Type: c.of("tcp", "http", "x"), Port: int32(c.n(3)) * 40000}
		}
		g.Spec.Services.NamespaceSelector = c.selector("team", "a")
		g.Spec.Services.Selector = c.selector("tier", "front")
		g.Spec.Services.MaxPorts = int32(c.n(4))
		g.Spec.Services.PerNamespace = v1alpha1.NamespaceQuota{Services: int32(c.n(6)), Backends: int32(c.n(8)), SourcePrefixes: int32(c.n(8))}
		g.Spec.LoadBalancers = v1alpha1.LoadBalancerPolicy{
			MemberNetworks: []v1alpha1.CIDR{v1alpha1.CIDR(c.of("10.0.0.0/8", "::/0", "x"))}, MemberMACs: c.n(2) == 0,
			ClusterNetworks: [][]string{nil, {"Node"}, {"Pod", "Service"}}[c.n(3)],
			Segments: []v1alpha1.SegmentRange{{
				Type: c.of("vlan", "vxlan", "x"), First: 1, Last: 4000,
				Announce: []v1alpha1.CIDR{v1alpha1.CIDR(c.of("192.0.2.0/24", "2001:db8::/64", "x"))},
			}},
		}
		return g
	case 2:
		p := &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: c.of("p", "q")}}
		p.Spec.Addresses = []v1alpha1.AddressRange{v1alpha1.AddressRange(c.of("198.51.100.0/24", "198.51.100.1/32", "2001:db8::/120", "10.0.0.1-10.0.0.9", "x"))}
		p.Spec.NamespaceSelector, p.Spec.ServiceSelector = c.selector("team", "a"), c.selector("tier", "front")
		p.Status.Assigned = int64(c.n(2))
		return p
	default:
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.of("d", "e", "f"), Labels: map[string]string{"team": c.of("a", "b")}}}
	}
}

// selector selects all objects, often.
func (c chooser) selector(key, value string) *metav1.LabelSelector {
	if c.n(4) > 0 {
		return nil
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// served is the condition that a group serves a Service.
func served(group string) []metav1.Condition {
	return []metav1.Condition{{Type: v1alpha1.ConditionServiceServed, Status: metav1.ConditionTrue, Reason: "Served", Message: group}}
}

func (c chooser) service() *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.of("a", "b", "c"), CreationTimestamp: metav1.Unix(int64(c.n(4)), 0)}}
	svc.Annotations = map[string]string{
		v1alpha1.AnnotationForward:     c.of("nat", "dsr", "l2dsr", "gue", "x"),
		v1alpha1.AnnotationHealthCheck: c.of("none", "tcp", "http", "x"), v1alpha1.AnnotationHealthCheckInterval: c.of("1s", "1ns", "x"),
	}
	if c.n(4) == 0 {
		svc.Labels = map[string]string{"tier": "front"}
	}
	svc.Status.Conditions = served(c.of("g", "h", "x", ""))
	class := c.of(v1alpha1.LoadBalancerClass, "other", "")
	svc.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceType(c.of("LoadBalancer", "LoadBalancer", "ClusterIP")), LoadBalancerClass: &class,
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicy(c.of("Local", "Cluster")),
		SessionAffinity:       corev1.ServiceAffinity(c.of("ClientIP", "None")),
		HealthCheckNodePort:   int32(c.n(3) * 30000),
		ClusterIPs:            []string{c.of("10.0.0.1", "10.96.0.1", "None")},
	}
	if timeout := int32(c.n(4)) * 30000; timeout > 0 {
		svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
	}
	for range c.n(4) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{
			Name: c.of("", "p", "q"), Protocol: corev1.Protocol(c.of("TCP", "UDP", "SCTP", "")), Port: int32(c.n(4)) * 40,
		})
	}
	for range c.n(3) {
		svc.Spec.LoadBalancerSourceRanges = append(svc.Spec.LoadBalancerSourceRanges, c.of("10.0.0.0/8", "10.0.0.1/8", "fd00::/8", "x", "::ffff:0:0/96"))
	}
	for range c.n(4) {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{IP: c.of(append([]string{"x", "", "127.0.0.1", "::ffff:1.2.3.4"}, c.addresses...)...)})
	}
	return svc
}

func (c chooser) slice() *discoveryv1.EndpointSlice {
	es := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.namespace, Name: c.of("s", "t", "u"), Labels: map[string]string{discoveryv1.LabelServiceName: c.of("a", "b", "c", "")},
	}}
	es.AddressType = discoveryv1.AddressType(c.of("IPv4", "IPv6", "FQDN"))
	name, number := c.of("", "p"), int32(c.n(3)*40000)
	es.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &number}, {}}
	for range c.n(4) {
		node := c.of("lb1", "n3")
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{c.of("10.0.0.1", "10.0.0.2", "fd00::1", "x", "127.0.0.1", "198.51.100.1", "::ffff:10.0.0.9")},
			NodeName:   &node,
			Conditions: discoveryv1.EndpointConditions{Ready: c.flag(), Serving: c.flag(), Terminating: c.flag()},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: c.of("a", "b")}}},
		})
	}
	return es
}

func (c chooser) balancer() *v1alpha1.LoadBalancer {
	b := &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.of("a", "b"), CreationTimestamp: metav1.Unix(int64(c.n(4)), 0)}}
	b.Spec.Forward = c.of("l2dsr", "nat", "vxlan", "x")
	b.Status.Address, b.Status.Group = c.of(append([]string{"x", ""}, c.addresses...)...), c.of("g", "h", "")
	if c.n(3) == 0 {
		b.Spec.Segment = &v1alpha1.Segment{Type: c.of("vlan", "vxlan", "x"), ID: int64(c.n(3)) * 4000}
		if b.Spec.Segment.Type == "vlan" { // its addresses are the tenant's choice
			b.Status.Address = c.of("198.51.100.1", "10.0.0.1", "192.0.2.1", "x")
		}
	}
	for _, name := range []string{"l", "m"} {
		b.Spec.Listeners = append(b.Spec.Listeners, v1alpha1.Listener{Name: name, Port: int32(c.n(3)) * 40, Protocol: c.of("TCP", "UDP"), Pool: c.of("p", "q"), Enabled: c.flag()})
	}
	pool := v1alpha1.Pool{Name: "p"}
	for range c.n(3) {
		m := v1alpha1.Member{Port: int32(c.n(3)) * 40, MemberOptions: v1alpha1.MemberOptions{MAC: c.of("", "02:00:00:00:00:01", "x")}}
		m.Address = v1alpha1.IPAddress(c.of("10.0.0.1", "10.0.0.5", "198.51.100.1", "fd00::1", "x"))
		pool.Members = append(pool.Members, m)
	}
	b.Spec.Pools = []v1alpha1.Pool{pool}
	return b
}

// identity names an object in a map.
func identity(obj runtime.Object) kube.Object {
	m, kind := obj.(metav1.Object), kube.Kind("")
	switch obj.(type) {
	case *corev1.Service:
		kind = kube.KindService
	case *discoveryv1.EndpointSlice:
		kind = kube.KindEndpointSlice
	case *corev1.Node:
		kind = kube.KindNode
	case *corev1.Namespace:
		kind = kube.KindNamespace
	case *v1alpha1.AddressPool:
		kind = kube.KindPool
	case *v1alpha1.LoadBalancerGroup:
		kind = kube.KindGroup
	case *v1alpha1.LoadBalancer:
		kind = kube.KindLoadBalancer
	}
	return kube.Object{Kind: kind, Namespace: m.GetNamespace(), Name: m.GetName()}
}

// historySteps is the number of flushes of a random history.
const historySteps = 60

// history has a cache follow random changes. At any time its services are valid and a store accepts
// them. At the end they equal the services of a cache that gets only the last version of each
// object.
func history(t *testing.T, seed uint64) {
	c := newChooser(seed)
	w, desired := newCache(xdpLimits()), store.New()
	last := map[kube.Object]runtime.Object{}
	for range historySteps {
		for range 1 + c.n(3) {
			obj := c.object()
			id := identity(obj)
			if c.n(4) == 0 {
				delete(last, id)
				w.Delete(id)
				continue
			}
			last[id] = obj
			w.Set(obj.DeepCopyObject().(metav1.Object))
		}
		change := w.Flush()
		for i := range change.Changed {
			if wrong := change.Changed[i].Check(); len(wrong) > 0 {
				t.Fatalf("FAIRLEAD_SEED=%d: %s is invalid: %v", seed, change.Changed[i].Name, wrong)
			}
		}
		if _, err := desired.Update(change.Changed, slices.Concat(change.Removed, change.Leaving)); err != nil {
			t.Fatalf("FAIRLEAD_SEED=%d: %v", seed, err)
		}
		if again := w.Flush(); !again.Empty() {
			t.Fatalf("FAIRLEAD_SEED=%d: nothing has changed, and yet %+v", seed, again)
		}
	}
	fresh := newCache(xdpLimits())
	for _, id := range slices.SortedFunc(maps.Keys(last), kube.Object.Compare) {
		fresh.Set(last[id].(metav1.Object))
	}
	fresh.Flush()
	want := describe(kube.Change{Update: source.Update{Changed: fresh.Services()}}, sorted(fresh.Problems()))
	if got := describe(kube.Change{Update: source.Update{Changed: w.Services()}}, sorted(w.Problems())); got != want {
		t.Fatalf("FAIRLEAD_SEED=%d: after changes\n%s\nfresh\n%s", seed, got, want)
	}
	if got := text(desired.Snapshot()); got != text(setOf(t, fresh.Services())) {
		t.Fatalf("FAIRLEAD_SEED=%d: the store has\n%s", seed, got)
	}
}

func sorted(problems []v1alpha1.NodeProblem) []v1alpha1.NodeProblem {
	slices.SortFunc(problems, func(a, b v1alpha1.NodeProblem) int { return slices.Compare([]string{a.String()}, []string{b.String()}) })
	return problems
}

func setOf(t *testing.T, services []lb.Service) store.Snapshot {
	snapshot, err := store.New().Set(services)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func text(s store.Snapshot) (out string) {
	for _, e := range s.Services {
		out += fmt.Sprintf("%s %v\n", e.Service.Name, e.Service.Backends)
	}
	return out
}

func TestCacheMatchesFreshCache(t *testing.T) {
	seed, long, n := fuzzrand.Seed(t), fuzzrand.Duration(t, 20*time.Second), 0
	for began := time.Now(); n < 300 && time.Since(began) < long; n++ {
		history(t, seed+uint64(n))
	}
	fuzzrand.Covered(t, n, n*historySteps)
}

// A node serves the same services for a namespace, and reports the same problems, with and without the
// objects of two others. No two have an address of a pool, as the controller assigns them.
func TestNamespacesApart(t *testing.T) {
	seed, runs, compared := fuzzrand.Seed(t), 400, 0
	limits := xdpLimits()
	limits.Schedulers, limits.MaxConnections, limits.Properties = []lb.Scheduler{lb.SchedulerLC, lb.SchedulerWRR}, true, append(limits.Properties, "firewallMark")
	for n := range runs {
		ours := newChooser(seed + uint64(n))
		theirs := []chooser{{ours.random, "e", []string{"198.51.100.11", "2001:db8::11"}}, {ours.random, "f", []string{"198.51.100.12", "2001:db8::12"}}}
		alone, all := newCache(limits), newCache(limits)
		set := func(o runtime.Object, caches ...*kube.Cache) {
			for _, w := range caches {
				w.Set(o.DeepCopyObject().(metav1.Object))
			}
		}
		for range 30 {
			set(ours.global(), alone, all)
		}
		for range 20 {
			set(ours.namespaced(), alone, all)
			object := theirs[ours.n(2)].namespaced()
			if svc, is := object.(*corev1.Service); is {
				svc.Spec.ClusterIPs = []string{"10.96.0.9"} // Kubernetes assigns one to one Service
			}
			set(object, all)
		}
		alone.Flush()
		all.Flush()
		got, want := servedFor("d", all), servedFor("d", alone)
		if got != want {
			t.Fatalf("FAIRLEAD_SEED=%d: with other namespaces\n%s\nwithout\n%s", seed+uint64(n), got, want)
		}
		compared += strings.Count(want, "\n")
	}
	if compared < runs {
		t.Errorf("%d services and problems in %d runs: nothing was compared", compared, runs)
	}
	fuzzrand.Covered(t, runs, runs*40)
}

// servedFor describes the services and problems of a namespace. Nodes choose the numbers of firewall marks.
func servedFor(namespace string, w *kube.Cache) string {
	services := slices.DeleteFunc(w.Services(), func(s lb.Service) bool { return !strings.Contains(s.Name, namespace+"/") })
	for i := range services {
		services[i].FirewallMark = min(services[i].FirewallMark, 1)
	}
	problems := slices.DeleteFunc(w.Problems(), func(p v1alpha1.NodeProblem) bool { return !strings.Contains(p.String(), namespace+"/") })
	return describe(kube.Change{Update: source.Update{Changed: services}}, sorted(problems))
}

func FuzzCache(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(history)
}

// A list that is read again lacks deleted objects: the cache names all that it has, also Services
// of which it needs only the cluster IPs.
func TestServiceNames(t *testing.T) {
	w := newCache(xdpLimits())
	internal := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "internal"}}
	internal.Spec.ClusterIPs = []string{"10.96.0.1"}
	w.Set(internal)
	both := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "both"}}
	both.Spec.Type, both.Spec.ClusterIPs = corev1.ServiceTypeLoadBalancer, []string{"10.96.0.2"}
	both.Status.Conditions = served("g")
	w.Set(both)
	without := both.DeepCopy()
	without.Name, without.Spec.ClusterIPs = "without", []string{"None"}
	w.Set(without)
	names := func() string {
		return fmt.Sprint(slices.SortedFunc(slices.Values(w.Names(kube.KindService)), kube.Object.Compare))
	}
	if got, want := names(), "[Service d/both Service d/internal Service d/without]"; got != want {
		t.Errorf("Services %s, want %s", got, want)
	}
	for _, id := range w.Names(kube.KindService) {
		w.Delete(id)
	}
	if got := names(); got != "[]" {
		t.Errorf("after their deletion: %s", got)
	}
}
