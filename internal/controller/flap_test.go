// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

// conditionHistory records the reasons of an object's conditions, each as often as it changes.
type conditionHistory struct {
	mu      sync.Mutex
	changes map[string][]string // by "object condition"
}

// follow records the conditions of a kind's objects in a namespace until the test ends.
func (w *testCluster) follow(list client.ObjectList, namespace string) *conditionHistory {
	w.Helper()
	admin := w.api.Config()
	watcher, err := client.NewWithWatch(admin, client.Options{Scheme: w.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	if err := w.List(w.Context(), list, client.InNamespace(namespace)); err != nil {
		w.Fatal(err)
	}
	events, err := watcher.Watch(w.Context(), list, &client.ListOptions{
		Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(events.Stop)
	h := &conditionHistory{changes: map[string][]string{}}
	go func() {
		for e := range events.ResultChan() {
			object, is := e.Object.(client.Object)
			switch {
			case is:
				h.add(object)
			case w.Context().Err() == nil:
				w.Errorf("watch: %v", e.Object)
			}
		}
	}()
	return h
}

func (h *conditionHistory) add(object client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range conditionsOf(object) {
		key := object.GetName() + " " + c.Type
		if all := h.changes[key]; len(all) == 0 || all[len(all)-1] != c.Reason {
			h.changes[key] = append(all, c.Reason)
		}
	}
}

// of returns the recorded reasons.
func (h *conditionHistory) of(object client.Object, kind string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.changes[object.GetName()+" "+kind])
}

// No published condition is withdrawn a moment later, neither of new objects nor after a restart,
// whether or not groups serve the objects as requested.
func TestAPIServerSteadyStatus(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	g := &v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	g.Spec.Size, g.Spec.DataPlane.Forward = 1, "nat"
	g.Spec.Services.PerNamespace.Services = 2
	g.Spec.LoadBalancers.MemberNetworks = []v1alpha1.CIDR{"10.0.0.0/8"}
	w.create(g)
	w.node("lb1", nil)
	r := w.run()
	w.knownPool("main", "192.0.2.0/28")
	w.made(g, "lb1")
	services, balancers := w.follow(&corev1.ServiceList{}, "default"), w.follow(&v1alpha1.LoadBalancerList{}, "default")
	fast := w.service("a", "health-check=tcp", "health-check-interval=100ms")
	w.says(fast, v1alpha1.ConditionServiceAccepted, no, "IntervalRaised")
	w.says(fast, v1alpha1.ConditionServiceServed, yes, "Served")
	refused := newService("b")
	refused.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 1}, {Name: "b", Port: 2}}
	w.create(refused)
	w.says(refused, v1alpha1.ConditionServiceServed, no, "QuotaExceeded")
	w.says(refused, v1alpha1.ConditionServiceAccepted, yes, "Accepted")
	w.await("a second in which younger objects are created", func() error {
		if time.Since(refused.CreationTimestamp.Time) < time.Second {
			return errors.New("not yet")
		}
		return nil
	})
	balancer := w.balancer("vm", func(b *v1alpha1.LoadBalancer) {
		b.Spec.Forward, b.Spec.Listeners = "nat", append(b.Spec.Listeners, v1alpha1.Listener{Name: "b", Port: 2, Pool: "web"})
	})
	w.says(balancer, v1alpha1.ConditionReady, no, "QuotaExceeded")
	expect := func(h *conditionHistory, object client.Object, kind string, want ...string) {
		t.Helper()
		w.await(fmt.Sprintf("%s of %s to become %q", kind, object.GetName(), want), func() error {
			if got := h.of(object, kind); !slices.Equal(got, want) {
				return fmt.Errorf("was %q", got)
			}
			return nil
		})
	}
	check := func() {
		t.Helper()
		expect(services, fast, v1alpha1.ConditionServiceAccepted, "IntervalRaised")
		expect(services, fast, v1alpha1.ConditionServiceServed, "Served")
		expect(services, refused, v1alpha1.ConditionServiceAccepted, "Accepted")
		expect(services, refused, v1alpha1.ConditionServiceServed, "QuotaExceeded")
		expect(balancers, balancer, v1alpha1.ConditionReady, "QuotaExceeded")
	}
	check()
	for range 3 {
		r.stop()
		r = w.run()
		next := w.service("next") // the new leader decides
		w.says(next, v1alpha1.ConditionServiceServed, yes, "Served")
		w.remove(next)
		check()
	}
}
