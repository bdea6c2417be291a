// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"fairlead.io/fairlead/api/v1alpha1"
)

// reconciliations returns how often each reconciler of this process has run, and how many objects are
// left for all of them.
func reconciliations(t testing.TB) (counts map[string]int, left float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts = map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "workqueue_depth", "controller_runtime_active_workers":
				left += m.GetGauge().GetValue()
			case "controller_runtime_reconcile_total":
				for _, l := range m.GetLabel() {
					if l.GetName() == "controller" {
						counts[l.GetValue()] += int(m.GetCounter().GetValue())
					}
				}
			}
		}
	}
	return counts, left
}

// Heartbeats of nodes, their traffic, other endpoints in the same number and edits of Services that
// change no network have the controller judge nothing again, and a burst of changes does so few
// times. The test isn't parallel: the counters are the process's.
func TestAPIServerFewReconciliations(t *testing.T) {
	w := newTestCluster(t)
	w.run()
	w.knownPool("main", "192.0.2.0/24")
	n := w.node("n1", map[string]string{"lb": "g"})
	g := w.group("g", 1)
	w.edit(g, func() {
		g.Spec.Autoscaling = &v1alpha1.Autoscaling{MaxSize: 2, PerNode: v1alpha1.NodeLoad{PacketsPerSecond: 1_000_000}}
	})
	w.made(g, "n1")
	const balancers, events, few = 20, 60, 25
	var programmed []*v1alpha1.LoadBalancer
	for i := range balancers {
		b := w.natBalancer(fmt.Sprint("b", i), "10.250.0.1")
		w.says(b, v1alpha1.ConditionReady, no, "NotAccepted")
		programmed = append(programmed, b)
	}
	svc := w.service("web")
	w.slice("default", "web", "web", netip.MustParseAddr("10.0.0.1"), 2)
	w.servedBy(svc, "g")
	// settle waits until a new Service is served, and no reconciler has anything left to do: all events
	// before are handled by then. It returns how often reconcilers have run.
	next := 0
	settle := func() (counts map[string]int) {
		t.Helper()
		next++
		s := w.service(fmt.Sprint("next", next))
		w.servedBy(s, "g")
		w.await("reconcilers to have nothing left", func() error {
			var left float64
			if counts, left = reconciliations(t); left > 0 {
				return fmt.Errorf("%.0f objects", left)
			}
			return nil
		})
		return counts
	}
	// Reports that cover all objects: after others their conditions change with time.
	report := func(packets int) {
		t.Helper()
		w.report("n1", v1alpha1.BalancerNodeStatus{
			Traffic:  v1alpha1.NodeTraffic{PacketsPerSecond: int64(packets)},
			Observed: v1alpha1.ObservedVersions{Services: "999999999999", LoadBalancers: "999999999999"},
		})
	}
	report(events)
	for _, b := range programmed {
		w.says(b, v1alpha1.ConditionProgrammed, yes, "Programmed")
	}
	settle()
	before := settle()
	for i := range events {
		report(i)
		n.Status.Conditions[0].Message = fmt.Sprint(i)
		w.ready(n, true) // with another heartbeat
		base := svc.DeepCopy()
		metav1.SetMetaDataAnnotation(&svc.ObjectMeta, "example.com/edited", fmt.Sprint(i))
		if err := w.Patch(t.Context(), svc, client.MergeFrom(base)); err != nil {
			t.Fatal(err)
		}
		es := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
		w.edit(es, func() { es.Endpoints[0].Addresses[0] = fmt.Sprintf("10.0.1.%d", i) })
	}
	after := settle()
	for _, name := range []string{"loadbalancerpolicy", "loadbalancergroup", "quota"} {
		if got := after[name] - before[name]; got > few {
			t.Errorf("%d events that don't matter have %s run %d times, want %d at most", 4*events, name, got, few)
		}
	}

	before = after
	for i := range events { // new cluster IPs, in networks of no LoadBalancer
		s := newService(fmt.Sprint("internal", i))
		s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
		w.create(s)
	}
	after = settle()
	if got := after["loadbalancer"] - before["loadbalancer"]; got > 0 {
		t.Errorf("cluster IPs that no LoadBalancer has as members have LoadBalancers reconciled %d times", got)
	}
	if after["service"] == before["service"] {
		t.Error("no Service was reconciled: the counters are wrong")
	}
}
