// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/test/await"
)

// explains waits until an object's condition has a status and a message.
func (w *testCluster) explains(object client.Object, kind string, status metav1.ConditionStatus, message string) {
	w.Helper()
	w.awaitObject(object, fmt.Sprintf("%s to be %s=%s: %s", object.GetName(), kind, status, message), func() error {
		if c := meta.FindStatusCondition(conditionsOf(object), kind); c == nil || c.Status != status || c.Message != message {
			return fmt.Errorf("conditions %v", conditionsOf(object))
		}
		return nil
	})
}

// writesUntilProgrammed counts the writes of a LoadBalancer after this version, until nodes have programmed
// its generation.
func (w *testCluster) writesUntilProgrammed(b *v1alpha1.LoadBalancer) (writes int) {
	w.Helper()
	watcher, err := client.NewWithWatch(w.api.Config(), client.Options{Scheme: w.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	events, err := watcher.Watch(w.Context(), &v1alpha1.LoadBalancerList{}, &client.ListOptions{
		Namespace: b.Namespace, Raw: &metav1.ListOptions{ResourceVersion: b.ResourceVersion},
	})
	if err != nil {
		w.Fatal(err)
	}
	defer events.Stop()
	for {
		select {
		case e := <-events.ResultChan():
			now, is := e.Object.(*v1alpha1.LoadBalancer)
			if !is {
				w.Fatalf("watch: %v", e.Object)
			}
			writes++
			if c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionProgrammed); c.ObservedGeneration == b.Generation {
				return writes
			}
		case <-time.After(await.Patience):
			w.Fatalf("%s isn't programmed after %d writes", b.Name, writes)
		}
	}
}

// Node reports about a Service or LoadBalancer become conditions and Events.
func findingsOfObjects(w *testCluster) {
	w.run()
	w.knownPool("main", "192.0.2.0/24")
	label := map[string]string{"lb": "g"}
	w.node("n1", label)
	w.node("n2", label)
	g := w.group("g", 2)
	w.made(g, "n1", "n2")
	svc := w.service("web")
	b := &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Name: "lb", Namespace: "default"}, Spec: v1alpha1.LoadBalancerSpec{Forward: "nat"}}
	w.create(b)
	w.servedBy(svc, "g")
	w.says(b, v1alpha1.ConditionReady, yes, "Served")
	// report has nodes report their current state, with changes.
	report := func(nodes []string, change ...func(node string, s *v1alpha1.BalancerNodeStatus)) {
		w.Helper()
		for _, node := range nodes {
			s := v1alpha1.BalancerNodeStatus{
				Observed: v1alpha1.ObservedVersions{Services: svc.ResourceVersion, LoadBalancers: b.ResourceVersion},
				Routes:   v1alpha1.RouteCounts{Announced: 2, Sessions: 1}, Peers: []v1alpha1.NodePeer{session("leaf", "")},
			}
			for _, c := range change {
				c(node, &s)
			}
			w.report(node, s)
		}
	}
	both := []string{"n1", "n2"}
	report(both[:1])
	w.explains(g, v1alpha1.ConditionAnnounced, yes, "by n1")
	report(both)
	w.says(svc, v1alpha1.ConditionServiceProgrammed, yes, "Programmed")
	w.says(svc, v1alpha1.ConditionServiceBackendsHealthy, yes, "BackendsHealthy")
	w.says(svc, v1alpha1.ConditionServiceAnnounced, yes, "Announced")
	w.awaitEvents(svc, "Normal Allocated", "Normal Announced")
	w.says(b, v1alpha1.ConditionProgrammed, yes, "Programmed")
	w.says(b, v1alpha1.ConditionAnnounced, no, "NotAnnounced")
	w.explains(g, v1alpha1.ConditionAnnounced, yes, "by n1, n2")
	w.awaitEvents(g, "Normal Announced", "Normal Announced")

	w.edit(b, func() {
		b.Spec.Listeners = []v1alpha1.Listener{{Name: "web", Port: 80, Protocol: "TCP"}}
	})
	w.says(b, v1alpha1.ConditionAnnounced, yes, "Announced")
	w.says(b, v1alpha1.ConditionReady, yes, "Served")
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionProgrammed); c == nil || c.Status == yes && c.ObservedGeneration == b.Generation {
		w.Errorf("before a report of generation %d the condition is %+v", b.Generation, c)
	}
	report(both)
	w.await("the condition to follow the generation", func() error {
		w.says(b, v1alpha1.ConditionProgrammed, yes, "Programmed")
		if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionProgrammed); c.ObservedGeneration != b.Generation {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})

	w.edit(b, func() { b.Spec.Listeners[0].IdleTimeout = &metav1.Duration{Duration: time.Minute} })
	report(both)
	if writes := w.writesUntilProgrammed(b); writes != 1 {
		w.Errorf("%d writes of a status say that nodes have programmed a change, want 1", writes)
	}

	report(both, func(node string, s *v1alpha1.BalancerNodeStatus) {
		s.Backends.Unhealthy, s.Services.Failed = 1, 1
		s.Unhealthy = []v1alpha1.UnhealthyBackend{{Service: "flb:default/lb/web", Backend: "10.0.0.1:80", Message: "timeout"}}
		if s.FailedServices = []v1alpha1.NodeProblem{{Object: "default/web/80", Message: "table is full"}}; node == "n2" {
			s.Draining, s.Routes.Announced, s.Routes.Withheld = true, 0, 2
		}
	})
	w.explains(svc, v1alpha1.ConditionServiceProgrammed, no, "n1: table is full; n2: table is full")
	w.says(svc, v1alpha1.ConditionServiceBackendsHealthy, yes, "BackendsHealthy")
	w.explains(b, v1alpha1.ConditionBackendsHealthy, no, "10.0.0.1:80: timeout")
	w.explains(g, v1alpha1.ConditionAnnounced, yes, "by n1; not by n2: draining")
	w.awaitEvents(g, "Normal Announced", "Normal Announced", "Normal PartlyAnnounced")

	w.edit(svc, func() { svc.Spec.Type, svc.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil })
	w.awaitObject(svc, "a Service that isn't ours any more to have no condition of ours", func() error {
		if slices.ContainsFunc(svc.Status.Conditions, func(c metav1.Condition) bool { return strings.HasPrefix(c.Type, v1alpha1.Group) }) {
			return fmt.Errorf("it has %v", svc.Status.Conditions)
		}
		return nil
	})
}
