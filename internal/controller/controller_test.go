// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/controller"
	"fairlead.io/fairlead/test/await"
)

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

// Against a real API server, objects are written as users, kubelets and the DaemonSet
// would.
func TestAPIServerController(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	w.sub(t, "allocation", allocation)
	w.sub(t, "not ours", notOurs)
	w.sub(t, "no longer ours", noLongerOurs)
	w.sub(t, "two families", twoFamilies)
	w.sub(t, "sharing", sharing)
	w.sub(t, "wishes", wishes)
	w.sub(t, "pool edits", poolEdits)
	w.sub(t, "without .0 and .255", withoutZeroAnd255)
	w.sub(t, "selectors", selectors)
	w.sub(t, "new namespaces", newNamespaces)
	w.sub(t, "exhaustion", exhaustion)
	w.sub(t, "overlapping pools", overlappingPools)
	w.sub(t, "aggregates", aggregates)
	w.sub(t, "nodes without agent", nodesWithoutAgent)
	w.sub(t, "type changes", typeChanges)
	w.sub(t, "restart", restart)
	w.sub(t, "takeover", takeOver)
	w.sub(t, "conflicting statuses", conflictingStatuses)
	w.sub(t, "two controllers", twoControllers)
	w.sub(t, "nodes", nodes)
	w.sub(t, "groups", groups)
	w.sub(t, "groups that can't be written", unwrittenGroups)
	w.sub(t, "load balancers", loadBalancers)
	w.sub(t, "policy", policy)
	w.sub(t, "hosts", hosts)
	w.sub(t, "reports", reports)
	w.sub(t, "findings", findingsOfObjects)
	w.sub(t, "scaling", scaling)
}

func allocation(w *testCluster) {
	w.run()
	p := w.knownPool("main", "192.0.2.0/31")
	a := w.service("a")
	w.has(a, "192.0.2.0")
	if mode := a.Status.LoadBalancer.Ingress[0].IPMode; mode == nil || *mode != corev1.LoadBalancerIPModeVIP {
		w.Errorf("IP mode %v", mode)
	}
	w.says(a, v1alpha1.ConditionServiceAllocated, yes, "Allocated")
	w.says(a, v1alpha1.ConditionServiceAccepted, yes, "Accepted")
	w.awaitEvents(a, "Normal Allocated")
	w.says(p, v1alpha1.ConditionReady, yes, "PoolReady")
	w.awaitObject(p, "the pool's status", func() error {
		if p.Status.Assigned != 1 || p.Status.Available != 1 {
			return fmt.Errorf("status %+v", p.Status)
		}
		return nil
	})
}

func notOurs(w *testCluster) {
	w.run()
	w.pool("main", "192.0.2.0/31")
	foreign := newService("foreign")
	foreign.Spec.LoadBalancerClass = new("example.com/other")
	none := newService("none")
	none.Spec.LoadBalancerClass = nil
	for _, svc := range []*corev1.Service{foreign, none} {
		w.create(svc)
		w.patchStatus(svc, func() { svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}} })
	}
	w.has(w.service("ours"), "192.0.2.0")
	w.has(foreign, "198.51.100.1")
	w.servedBy(none, "")
	w.has(none, "198.51.100.1")
	if len(foreign.Status.Conditions)+len(none.Status.Conditions) > 0 {
		w.Error("others' Services have conditions of ours")
	}
}

// noLongerOurs starts a controller after a Service has lost its class, and its address.
func noLongerOurs(w *testCluster) {
	w.pool("main", "192.0.2.0/31")
	former := newService("former", "group=g")
	former.Spec.LoadBalancerClass = nil
	w.create(former)
	ours := w.service("ours")
	w.run()
	w.has(ours, "192.0.2.0")
	w.servedBy(former, "")
	w.has(former, "")
}

func twoFamilies(w *testCluster) {
	w.run()
	four := w.pool("four", "192.0.2.0/30")
	partial := dual(newService("partial"), corev1.IPFamilyPolicyPreferDualStack)
	w.create(partial)
	w.has(partial, "192.0.2.0")
	w.says(partial, v1alpha1.ConditionServiceAllocated, yes, "PartlyAllocated")
	w.waitForNextSecond(partial)
	both := dual(newService("both"), corev1.IPFamilyPolicyRequireDualStack)
	w.create(both)
	w.says(both, v1alpha1.ConditionServiceAllocated, no, "NoPool")
	w.has(both, "")
	w.pool("six", "2001:db8::/126")
	w.has(partial, "192.0.2.0,2001:db8::")
	w.has(both, "192.0.2.1,2001:db8::1")
	six := newService("six")
	six.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	w.create(six)
	w.has(six, "2001:db8::2")
	w.remove(four)
	w.has(partial, "2001:db8::")
	w.has(six, "2001:db8::2")
}

func sharing(w *testCluster) {
	w.run()
	w.pool("main", "192.0.2.0/30")
	first, second := w.service("first", "sharing-key=k"), newService("second", "sharing-key=k")
	w.has(first, "192.0.2.0")
	second.Spec.Ports[0].Port = 443
	w.create(second)
	w.has(second, "192.0.2.0")
	w.has(w.service("third", "sharing-key=k"), "192.0.2.1") // the port is in use
	w.edit(second, func() { second.Spec.Ports[0].Port = 80 })
	w.has(second, "192.0.2.2")
	w.has(first, "192.0.2.0")
	// The port of one that can't be understood is in use too.
	w.edit(first, func() {
		first.Spec.Ports[0].Port, first.Annotations[v1alpha1.AnnotationAddresses] = 8080, "?"
	})
	w.says(first, v1alpha1.ConditionServiceAllocated, no, "BadAnnotation")
	fourth := newService("fourth", "sharing-key=k")
	fourth.Spec.Ports[0].Port = 8080
	w.create(fourth)
	if w.hasSome(fourth) == "192.0.2.0" {
		w.Error("192.0.2.0:8080 has two owners")
	}
	w.has(first, "192.0.2.0")
}

func wishes(w *testCluster) {
	w.run()
	w.pool("main", "192.0.2.0/30")
	manual := w.pool("manual", "203.0.113.0/30")
	w.edit(manual, func() { manual.Spec.AutoAssign = new(false) })
	w.has(w.service("address", "addresses=192.0.2.2"), "192.0.2.2")
	taken := w.service("taken", "addresses=192.0.2.2")
	w.says(taken, v1alpha1.ConditionServiceAllocated, no, "AddressTaken")
	w.has(w.service("pool", "address-pool=manual"), "203.0.113.0")
	w.says(w.service("outside", "addresses=198.51.100.1"), v1alpha1.ConditionServiceAllocated, no, "AddressNotInPool")
	w.says(w.service("nowhere", "address-pool=nowhere"), v1alpha1.ConditionServiceAllocated, no, "BadPool")
	bad := w.service("bad", "addresses=192.0.2")
	w.says(bad, v1alpha1.ConditionServiceAllocated, no, "BadAnnotation")
	w.says(bad, v1alpha1.ConditionServiceAccepted, no, "BadAnnotation")
	odd := w.service("odd", "forward=vxlan")
	w.hasSome(odd)
	w.says(odd, v1alpha1.ConditionServiceAccepted, no, "BadAnnotation")
	w.edit(bad, func() { bad.Annotations[v1alpha1.AnnotationAddresses] = "192.0.2.3" })
	w.has(bad, "192.0.2.3")
	// A request that becomes invalid loses no addresses.
	w.edit(bad, func() { bad.Annotations[v1alpha1.AnnotationAddresses] = "?" })
	w.says(bad, v1alpha1.ConditionServiceAccepted, no, "BadAnnotation")
	w.has(bad, "192.0.2.3")
	old := newService("old")
	old.Spec.LoadBalancerIP = "192.0.2.1"
	w.create(old)
	w.has(old, "192.0.2.1")
	// A request that fails keeps the current address.
	w.edit(old, func() { old.Spec.LoadBalancerIP = "192.0.2.2" })
	message := w.says(old, v1alpha1.ConditionServiceAllocated, no, "AddressTaken")
	if !strings.HasSuffix(message, "; keeps 192.0.2.1") {
		w.Errorf("message %q", message)
	}
	w.has(old, "192.0.2.1")
}

func poolEdits(w *testCluster) {
	w.run()
	p := w.knownPool("main", "192.0.2.0/31")
	svc := w.service("web")
	w.has(svc, "192.0.2.0")
	w.edit(p, func() { p.Spec.Addresses = []v1alpha1.AddressRange{"203.0.113.7-203.0.113.8"} })
	w.has(svc, "203.0.113.7")
	w.awaitEvents(svc, "Normal Allocated", "Normal Allocated")
	w.remove(p)
	w.has(svc, "")
	w.says(svc, v1alpha1.ConditionServiceAllocated, no, "NoPool")
	other := w.pool("other", "192.0.2.0/31")
	w.has(svc, "192.0.2.0")
	// A pool that is kept by a finalizer assigns no addresses.
	w.edit(other, func() { other.Finalizers = []string{"example.com/wait"} })
	w.remove(other)
	w.has(svc, "")
	w.edit(other, func() { other.Finalizers = nil })
}

func selectors(w *testCluster) {
	w.run()
	p := w.pool("labelled", "192.0.2.0/31")
	w.edit(p, func() {
		p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		p.Spec.ServiceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
		p.Spec.Priority = 1
	})
	svc := w.service("web")
	w.says(svc, v1alpha1.ConditionServiceAllocated, no, "NoPool")
	w.edit(svc, func() { svc.Labels = map[string]string{"tier": "web"} })
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	w.edit(namespace, func() { namespace.Labels["team"] = "a" })
	w.has(svc, "192.0.2.0")
	w.pool("rest", "203.0.113.0/31")
	w.edit(namespace, func() { delete(namespace.Labels, "team") })
	w.has(svc, "203.0.113.0")
}

// A Service gets its address when its namespace is known, however late that is: before,
// the wrong pool may be the first to match.
func newNamespaces(w *testCluster) {
	late, release := w.withLateNamespaces()
	defer release()
	late.run()
	w.pool("rest", "203.0.113.0/30")
	p := &v1alpha1.AddressPool{}
	p.Name, p.Spec.Priority, p.Spec.Addresses = "labelled", 1, []v1alpha1.AddressRange{"192.0.2.0/30"}
	p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	w.create(p)
	w.says(p, v1alpha1.ConditionReady, yes, "PoolReady")
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new", Labels: map[string]string{"team": "a"}}})
	svc := newService("web")
	svc.Namespace = "new"
	w.create(svc)
	w.has(w.service("after"), "203.0.113.0")
	w.waitForNextSecond(svc)
	w.has(svc, "")
	release()
	w.has(svc, "192.0.2.0")
	w.awaitEvents(svc, "Normal Allocated")
}

func withoutZeroAnd255(w *testCluster) {
	w.run()
	p := w.knownPool("main", "192.0.2.254-192.0.3.1", "2001:db8::/127")
	w.edit(p, func() { p.Spec.SkipZeroAnd255 = true })
	w.has(w.service("first"), "192.0.2.254")
	w.has(w.service("second"), "192.0.3.1")
	third := w.service("third", "addresses=192.0.3.0")
	w.says(third, v1alpha1.ConditionServiceAllocated, no, "AddressNotInPool")
	w.says(w.service("fourth"), v1alpha1.ConditionServiceAllocated, no, "PoolExhausted")
	six := newService("six")
	six.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	w.create(six)
	w.has(six, "2001:db8::")
	w.edit(p, func() { p.Spec.SkipZeroAnd255 = false })
	w.has(third, "192.0.3.0")
}

// Waiting Services are served in the order of their creation.
func exhaustion(w *testCluster) {
	w.run()
	p := w.knownPool("small", "192.0.2.0/32")
	first := w.service("first")
	w.has(first, "192.0.2.0")
	second := w.service("second")
	w.says(second, v1alpha1.ConditionServiceAllocated, no, "PoolExhausted")
	later := w.waitForNextSecond(second)
	third := w.service("a-third")
	w.says(third, v1alpha1.ConditionServiceAllocated, no, "PoolExhausted")
	w.remove(first)
	w.has(second, "192.0.2.0")
	w.edit(p, func() { p.Spec.Addresses = append(p.Spec.Addresses, "192.0.2.9-192.0.2.9") })
	w.has(third, "192.0.2.9")
	if !third.CreationTimestamp.After(later) {
		w.Fatal("the test made two Services in one second")
	}
	w.awaitEvents(second, "Warning PoolExhausted", "Normal Allocated")
}

func overlappingPools(w *testCluster) {
	w.run()
	one, two := w.pool("one", "192.0.2.0/31"), w.pool("two", "192.0.2.1-192.0.2.2")
	w.has(w.service("a", "address-pool=one"), "192.0.2.0")
	w.has(w.service("b", "address-pool=one"), "192.0.2.1")
	w.has(w.service("c", "address-pool=two"), "192.0.2.2")
	w.says(w.service("d"), v1alpha1.ConditionServiceAllocated, no, "PoolExhausted")
	if message := w.says(one, v1alpha1.ConditionReady, yes, "PoolOverlaps"); !strings.HasSuffix(message, "two") {
		w.Errorf("message %q", message)
	}
	// The address moves to the other pool, and stays.
	w.remove(one)
	w.says(two, v1alpha1.ConditionReady, yes, "PoolReady")
	b := newService("b")
	w.edit(b, func() { delete(b.Annotations, v1alpha1.AnnotationAddressPool) })
	w.has(b, "192.0.2.1")
}

// A pool with an aggregate says that nodes announce host routes while two groups serve its addresses.
func aggregates(w *testCluster) {
	w.run()
	p := &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "public"}}
	p.Spec.Addresses, p.Spec.Announce = []v1alpha1.AddressRange{"192.0.2.0/28"}, &v1alpha1.Announcement{Aggregate: true}
	w.create(p)
	for _, name := range []string{"front", "inner"} {
		g := w.group(name, 1)
		w.edit(g, func() { g.Spec.Services.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"side": name}} })
		w.node(name, map[string]string{"lb": name})
	}
	service := func(name, side string) *corev1.Service {
		svc := newService(name)
		svc.Labels = map[string]string{"side": side}
		w.create(svc)
		w.servedBy(svc, side)
		return svc
	}
	service("a", "front")
	w.says(p, v1alpha1.ConditionReady, yes, "PoolReady")
	b := service("b", "inner")
	want := "spec.announce.aggregate: 192.0.2.0/28 has addresses of LoadBalancerGroups front, inner: they are announced as host routes"
	if message := w.says(p, v1alpha1.ConditionReady, no, "NotAggregated"); message != want {
		w.Errorf("message %q, want %q", message, want)
	}
	w.remove(b)
	w.says(p, v1alpha1.ConditionReady, yes, "PoolReady")
}

// A group's status has the nodes from which no agent has reported yet, and those that were started
// again since. An older agent reports no start.
func nodesWithoutAgent(w *testCluster) {
	w.run()
	g := w.group("main", 1)
	w.node("n1", nil)
	n := w.node("n2", nil)
	lists := func(without, restarted []string) {
		w.Helper()
		w.awaitObject(g, fmt.Sprintf("nodes without agent %v, restarted ones %v", without, restarted), func() error {
			s := &g.Status
			if !slices.Equal(s.NodesWithoutAgent, without) || !slices.Equal(s.NodesRestarted, restarted) {
				return fmt.Errorf("are %v and %v", s.NodesWithoutAgent, s.NodesRestarted)
			}
			return nil
		})
	}
	boot := func(id string) {
		w.Helper()
		n.Status.NodeInfo.BootID = id
		w.ready(n, true)
	}
	lists([]string{"n1", "n2"}, nil)
	w.report("n1", v1alpha1.BalancerNodeStatus{})
	lists([]string{"n2"}, nil)
	boot("first")
	w.report("n2", v1alpha1.BalancerNodeStatus{})
	lists(nil, nil)
	w.report("n2", v1alpha1.BalancerNodeStatus{Observed: v1alpha1.ObservedVersions{BootID: "first"}})
	boot("second")
	lists(nil, []string{"n2"})
	w.report("n2", v1alpha1.BalancerNodeStatus{Observed: v1alpha1.ObservedVersions{BootID: "second"}})
	lists(nil, nil)
}

func typeChanges(w *testCluster) {
	w.run()
	w.pool("small", "192.0.2.0/32")
	g := w.group("g", 1)
	w.node("n1", map[string]string{"lb": "g"})
	svc := w.service("web")
	w.servedBy(svc, "g")
	second := w.service("second")
	w.says(second, v1alpha1.ConditionServiceAllocated, no, "PoolExhausted")
	w.edit(svc, func() { svc.Spec.Type, svc.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil })
	w.has(second, "192.0.2.0")
	w.has(svc, "")
	w.servedBy(svc, "")
	if len(svc.Status.Conditions) > 0 {
		w.Errorf("conditions %v", svc.Status.Conditions)
	}
	w.edit(svc, func() { svc.Spec.Type, svc.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, &class })
	w.says(svc, v1alpha1.ConditionServiceAllocated, no, "PoolExhausted")
	w.edit(second, func() { second.Spec.Type, second.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, &class })
	w.remove(second)
	w.has(svc, "192.0.2.0")
	w.made(g, "n1")
}

// A new controller keeps all assignments.
func restart(w *testCluster) {
	r := w.run()
	w.knownPool("main", "192.0.2.0/29")
	w.node("n1", map[string]string{"lb": "g"})
	w.group("g", 1)
	var all []*corev1.Service
	for i := range 4 {
		svc := w.service(fmt.Sprintf("s%d", i))
		w.hasSome(svc)
		w.servedBy(svc, "g")
		w.awaitEvents(svc, "Normal Allocated") // a controller that stops may not have written it
		all = append(all, svc)
	}
	r.stop()
	w.remove(all[0]) // while no controller runs
	during := w.service("during")
	fixed := w.service("fixed", "addresses="+all[1].Status.LoadBalancer.Ingress[0].IP)
	w.run()
	w.has(during, all[0].Status.LoadBalancer.Ingress[0].IP)
	w.says(fixed, v1alpha1.ConditionServiceAllocated, no, "AddressTaken")
	for _, svc := range all[1:] {
		before := svc.ResourceVersion
		w.hasSome(svc)
		w.servedBy(svc, "g")
		if svc.ResourceVersion != before {
			w.Errorf("%s was written", svc.Name)
		}
		w.awaitEvents(svc, "Normal Allocated")
	}
}

// Of two that show the same address, as after a restore from two backups, the older
// keeps it.
func conflictingStatuses(w *testCluster) {
	w.pool("main", "192.0.2.0/30")
	older := w.service("z-older")
	w.waitForNextSecond(older)
	younger := w.service("a-younger")
	for _, svc := range []*corev1.Service{older, younger} {
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.0"}}
		if err := w.Status().Update(w.Context(), svc); err != nil {
			w.Fatal(err)
		}
	}
	w.run()
	w.has(younger, "192.0.2.1")
	w.has(older, "192.0.2.0")
}

// The leader is cut off while Services are created: the other one takes over.
func twoControllers(w *testCluster) {
	w.pool("main", "192.0.2.0/26")
	watch := w.watchOwners()
	leader := w.run(shortLease)
	w.hasSome(w.service("before"))
	w.run(shortLease)
	var all []*corev1.Service
	for i := range 40 {
		if i == 20 {
			leader.crash()
		}
		all = append(all, w.service(fmt.Sprintf("s%d", i)))
	}
	for _, svc := range all {
		w.hasSome(svc)
	}
	if err := <-leader.ended; err == nil {
		w.Error("a controller that lost its lease ends without error")
	}
	leader.ended <- nil
	watch.check()
}

func nodes(w *testCluster) {
	r := w.run(func(o *controller.Options) { o.AgentGrace = await.Patience * 10 })
	g := w.group("g", 2)
	const none = "0 nodes of 2, 0 ready; nodeSelector matches 0"
	if message := w.says(g, v1alpha1.ConditionReady, no, "NoNodes"); message != none {
		w.Errorf("message %q, want %q", message, none)
	}
	label := map[string]string{"lb": "g"}
	n1, n2 := w.node("n1", label), w.node("n2", nil)
	w.made(g, "n1")
	w.says(g, v1alpha1.ConditionReady, yes, "SomeNodesReady")
	w.edit(n2, func() { n2.Labels = label }) // label a node and it joins
	w.made(g, "n1", "n2")
	w.says(g, v1alpha1.ConditionReady, yes, "AllNodesReady")
	n3 := w.node("n3", label) // spare
	w.remove(n1)
	w.made(g, "n2", "n3")
	w.ready(n2, false) // no spare can replace it
	w.made(g, "n2!", "n3")
	n4 := w.node("n4", label)
	w.made(g, "n3", "n4")
	w.edit(n3, func() { n3.Spec.Unschedulable = true })
	w.made(g, "n2!", "n4")
	w.ready(n2, true)
	w.made(g, "n2", "n4")
	w.edit(n3, func() { n3.Spec.Unschedulable = false })
	w.agentReady("n4", false) // it will be back soon
	w.made(g, "n2", "n4!")
	r.stop()
	w.run(func(o *controller.Options) { o.AgentGrace = 1 })
	w.made(g, "n2", "n3")

	w.agentReady("n4", true)
	announced := v1alpha1.BalancerNodeStatus{Routes: v1alpha1.RouteCounts{Announced: 1}}
	w.report("n2", announced)
	w.edit(n2, func() { n2.Spec.Unschedulable = true })
	w.made(g, "n2", "n3", "n4")
	w.report("n3", announced)
	w.report("n4", announced)
	w.made(g, "n3", "n4")
	w.edit(n2, func() { n2.Spec.Unschedulable = false })

	w.edit(n2, func() { n2.Labels[corev1.LabelNodeExcludeBalancers] = "" })
	w.edit(n4, func() { n4.Labels = nil })
	w.made(g, "n3")
	w.edit(n3, func() { n3.Labels[corev1.LabelNodeExcludeBalancers] = "" })
	w.made(g)
	const out = "0 nodes of 2, 0 ready; nodeSelector matches 2, of which 2 are excluded by their label node.kubernetes.io/exclude-from-external-load-balancers"
	if message := w.says(g, v1alpha1.ConditionReady, no, "NoNodes"); message != out {
		w.Errorf("message %q, want %q", message, out)
	}
}

func groups(w *testCluster) {
	w.run()
	w.pool("main", "192.0.2.0/26")
	a := w.group("a", 1)
	w.node("n1", map[string]string{"lb": "a"})
	w.node("n2", map[string]string{"lb": "b"})
	first := w.service("first", "sharing-key=k")
	w.servedBy(first, "a")
	b := w.group("b", 1)
	w.made(b, "n2")
	second := w.service("second")
	w.servedBy(second, "b") // which has the fewest addresses
	w.servedBy(first, "a")
	same := newService("same", "sharing-key=k")
	same.Spec.Ports[0].Port = 443
	w.create(same)
	w.servedBy(same, "a") // they share the address
	w.awaitObject(a, "the group's counts", func() error {
		if a.Status.Services != 2 || a.Status.Addresses != 1 {
			return fmt.Errorf("status %+v", a.Status)
		}
		return nil
	})
	w.remove(a)
	w.servedBy(first, "b")
	w.servedBy(same, "b")
	w.remove(b)
	w.servedBy(first, "")
	w.says(first, v1alpha1.ConditionServiceServed, metav1.ConditionFalse, "NoGroup")
	c := w.group("c", 1)
	w.edit(c, func() {
		c.Spec.NodeSelector.MatchLabels["lb"] = "b"
		c.Spec.Services.Classes = []string{"fairlead.io/special"}
	})
	special := newService("special")
	special.Spec.LoadBalancerClass = new("fairlead.io/special")
	w.create(special)
	w.servedBy(special, "c")
	w.servedBy(first, "")
	w.group("a", 1) // again
	w.servedBy(first, "a")
	w.says(first, v1alpha1.ConditionServiceServed, metav1.ConditionTrue, "Served")
}

func loadBalancers(w *testCluster) {
	w.run()
	w.pool("main", "192.0.2.0/31")
	w.node("n1", map[string]string{"lb": "g"})
	g := w.group("g", 1)
	w.edit(g, func() {
		g.Spec.LoadBalancers.MemberNetworks = []v1alpha1.CIDR{"10.0.0.0/24"}
		g.Spec.LoadBalancers.Segments = []v1alpha1.SegmentRange{{Type: "vlan", First: 7, Last: 9}}
	})
	auto := w.balancer("auto", nil)
	w.has(auto, "192.0.2.0")
	w.says(auto, v1alpha1.ConditionAllocated, yes, "Allocated")
	w.says(auto, v1alpha1.ConditionReady, yes, "Served")
	if auto.Status.Group != "g" {
		w.Errorf("group %q", auto.Status.Group)
	}
	taken := w.balancer("taken", func(b *v1alpha1.LoadBalancer) { b.Spec.Address = "192.0.2.0" })
	w.says(taken, v1alpha1.ConditionAllocated, no, "AddressTaken")
	inSegment := func(id int64) func(b *v1alpha1.LoadBalancer) {
		return func(b *v1alpha1.LoadBalancer) {
			b.Spec.Address, b.Spec.Segment = "192.0.2.0", &v1alpha1.Segment{Type: "vlan", ID: id}
		}
	}
	w.has(w.balancer("vlan7", inSegment(7)), "192.0.2.0")
	w.has(w.balancer("vlan8", inSegment(8)), "192.0.2.0")
	again := w.balancer("again", inSegment(7))
	w.says(again, v1alpha1.ConditionAllocated, no, "AddressTaken")
	w.edit(again, func() { again.Spec.Segment.ID = 9 })
	w.has(again, "192.0.2.0")
	w.has(w.service("web"), "192.0.2.1")
	w.remove(auto)
	w.has(taken, "192.0.2.0")
	w.remove(taken)
	w.has(w.balancer("next", nil), "192.0.2.0")
	bad := w.balancer("bad", func(b *v1alpha1.LoadBalancer) {
		b.Spec.Pools[0].Members = append(b.Spec.Pools[0].Members, v1alpha1.Member{Address: "10.0.0.2", Port: 81})
	})
	w.says(bad, v1alpha1.ConditionReady, no, "NoAddress")
	if l, p := bad.Status.Listeners[0], bad.Status.Pools[0]; !l.Accepted || p.Accepted || len(p.Members) != 1 || p.Members[0].Name != "10.0.0.2:81" {
		w.Errorf("listener %+v, pool %+v", l, p)
	}
}

// The next controller writes the objects of addresses that have none, as after an upgrade, and no Services.
func takeOver(w *testCluster) {
	r := w.run()
	w.knownPool("main", "192.0.2.0/32")
	served := w.service("served")
	w.has(served, "192.0.2.0")
	w.says(served, v1alpha1.ConditionServiceServed, no, "NoGroup") // the last write of this controller
	open := w.service("open")
	w.says(open, v1alpha1.ConditionServiceAllocated, no, "PoolExhausted")
	w.awaitEvents(open, "Warning PoolExhausted")
	r.stop()
	address := &v1alpha1.AssignedAddress{ObjectMeta: metav1.ObjectMeta{Name: "192.0.2.0"}}
	w.remove(address)
	w.run()
	w.awaitObject(address, "an owner", func() error {
		if o := address.Spec.Owners; len(o) != 1 || o[0].Name != "served" || o[0].ResourceVersion != served.ResourceVersion {
			return fmt.Errorf("owners %v", o)
		}
		return nil
	})
	for _, svc := range []*corev1.Service{served, open} {
		before := svc.ResourceVersion
		if w.has(svc, map[string]string{"served": "192.0.2.0"}[svc.Name]); svc.ResourceVersion != before {
			w.Errorf("%s was written", svc.Name)
		}
	}
	w.remove(served)
	w.has(open, "192.0.2.0")
	w.awaitEvents(open, "Warning PoolExhausted", "Normal Allocated")
}
