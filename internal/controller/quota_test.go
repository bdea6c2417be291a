// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/internal/store"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// node1 is an agent's part of a node: its source, store and reconciler, on a data plane in memory.
type node1 struct {
	w     *testCluster
	store *store.Store
	plane *dataplanetest.Fake
}

func (w *testCluster) runNode(name string) *node1 {
	w.Helper()
	log := slog.New(slog.DiscardHandler)
	n := &node1{w: w, store: store.New(), plane: dataplanetest.NewFake()}
	config := w.api.Config()
	config.QPS = -1
	src, err := kube.Open(kube.Options{
		Config: kube.Config{Node: name, Limits: dataplanetest.Limits(), MaxServices: 1 << 13, MaxBackends: 1 << 17},
		API:    config, Namespace: home, StateDir: w.TempDir(), Log: log,
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	src.Start(ctx)
	go func() {
		if err := src.Run(ctx, n.apply); err != nil {
			w.Error(err)
		}
		ended <- struct{}{}
	}()
	go func() {
		reconcile.New(n.plane, n.store, log).Run(ctx)
		ended <- struct{}{}
	}()
	w.Cleanup(func() {
		stop()
		<-ended
		<-ended
		if err := n.plane.Close(); err != nil {
			w.Error(err)
		}
	})
	return n
}

func (n *node1) apply(u source.Update) (err error) {
	if u.Whole {
		_, err = n.store.Set(u.Changed)
		return err
	}
	_, err = n.store.Update(u.Changed, slices.Concat(u.Removed, u.Leaving))
	return err
}

// of returns a namespace's services.
func (n *node1) of(namespace string) (entries []store.Entry) {
	for _, e := range n.store.Snapshot().Services {
		if e.Service.Namespace == namespace {
			entries = append(entries, e)
		}
	}
	return entries
}

// slice makes an EndpointSlice of a Service with n endpoints from an address on.
func (w *testCluster) slice(namespace, service, name string, from netip.Addr, n int) {
	w.Helper()
	es := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: new(int32(8080)), Name: new("")}},
	}
	for range n {
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{from.String()}})
		from = from.Next()
	}
	w.create(es)
}

// One namespace requests 10,000 ports, 100,000 endpoints, 100,000 source ranges and more Services
// than its quota. Its objects' conditions show the refusals, the node serves the admitted objects,
// and another namespace's Service is always served and follows its endpoints.
func TestAPIServerTenants(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	w.run()
	w.knownPool("main", "198.51.0.0/16")
	g := &v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	g.Spec.Size, g.Spec.DataPlane.Forward = 1, "nat"
	g.Spec.Services.PerNamespace.Services = 60
	w.create(g)
	w.node("lb1", nil)
	w.made(g, "lb1")
	n := w.runNode("lb1")
	for _, name := range []string{"quiet", "noisy"} {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	add := func(namespace, name string, change func(*corev1.Service)) *corev1.Service {
		t.Helper()
		svc := newService(name)
		svc.Namespace, svc.Spec.Selector, svc.Spec.AllocateLoadBalancerNodePorts = namespace, nil, new(bool)
		change(svc)
		w.create(svc)
		return svc
	}
	backend := netip.MustParseAddr("10.255.0.1")
	quiet := add("quiet", "web", func(*corev1.Service) {})
	w.slice("quiet", "web", "web-0", backend, 1)
	w.hasSome(quiet)
	vip := lb.VIP{Address: netip.MustParseAddr(quiet.Status.LoadBalancer.Ingress[0].IP), Port: 80, Protocol: lb.TCP}
	client := netip.MustParseAddrPort("192.0.2.1:4711")
	w.await("quiet/web to answer", func() error {
		if _, ok := n.plane.Probe(vip, client); !ok {
			return fmt.Errorf("services %v", n.of("quiet"))
		}
		return nil
	})

	answers := make(chan string, 1)
	asked, stopAsking := context.WithCancel(t.Context())
	go func() { // a client of the other namespace's Service
		for i := 0; asked.Err() == nil; i++ {
			if _, ok := n.plane.Probe(vip, client); !ok {
				answers <- fmt.Sprintf("request %d has no answer", i)
				return
			}
			time.Sleep(time.Millisecond)
		}
		answers <- ""
	}()
	// follows has the other namespace's Service follow a change of its endpoints.
	slices := 1
	follows := func() (took time.Duration) {
		t.Helper()
		backend = backend.Next()
		w.slice("quiet", "web", fmt.Sprintf("web-%d", slices), backend, 1)
		slices++
		began := time.Now()
		w.await("a new endpoint of quiet/web", func() error {
			if all := n.of("quiet"); len(all) != 1 || len(all[0].Service.Backends) != slices {
				return fmt.Errorf("services %v", all)
			}
			return nil
		})
		return time.Since(began)
	}
	before := follows()

	ports := add("noisy", "ports", func(svc *corev1.Service) {
		svc.Spec.Ports = nil
		for i := range 10_000 {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(i + 1)})
		}
	})
	few := add("noisy", "few", func(svc *corev1.Service) { // more than the group allows, fewer than the API
		svc.Spec.Ports = nil
		for i := range 300 {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(i + 1)})
		}
	})
	pods := add("noisy", "pods", func(*corev1.Service) {})
	from := netip.MustParseAddr("10.0.0.1")
	for i := range 100 {
		w.slice("noisy", "pods", fmt.Sprintf("pods-%d", i), netip.AddrFrom4([4]byte{10, byte(i), 0, 1}), 1000)
		if i%20 == 0 {
			t.Logf("a new endpoint with %d others: %s, before %s", 1000*i, follows(), before)
		}
	}
	var ranges []*corev1.Service
	for i := range 25 {
		ranges = append(ranges, add("noisy", fmt.Sprintf("ranges-%02d", i), func(svc *corev1.Service) {
			for j := range 4000 {
				svc.Spec.LoadBalancerSourceRanges = append(svc.Spec.LoadBalancerSourceRanges, fmt.Sprintf("10.%d.%d.0/24", j>>8, j&255))
			}
		}))
	}
	t.Logf("a new endpoint with 100,000 ranges: %s", follows())
	var more []*corev1.Service
	for i := range 100 {
		more = append(more, add("noisy", fmt.Sprintf("z%03d", i), func(*corev1.Service) {}))
	}
	w.slice("noisy", "z000", "z000", from, 1)

	// By its status, which nodes obey, no group serves a refused LoadBalancer. It is younger than the Services:
	// creation times are whole seconds, and of one second LoadBalancers are first.
	time.Sleep(time.Until(more[len(more)-1].CreationTimestamp.Add(time.Second)))
	vm := &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "noisy", Name: "vm"}, Spec: v1alpha1.LoadBalancerSpec{Forward: "nat"}}
	vm.Spec.Listeners, vm.Spec.Pools = []v1alpha1.Listener{{Name: "l", Port: 80, Pool: "p"}}, []v1alpha1.Pool{{Name: "p"}}
	w.create(vm)
	if w.says(vm, v1alpha1.ConditionReady, no, "QuotaExceeded"); vm.Status.Group != "" || vm.Status.Address == "" {
		t.Errorf("a refused LoadBalancer has the status %+v", vm.Status)
	}

	w.says(ports, v1alpha1.ConditionServiceAccepted, no, "BadSpec")
	const reason = "QuotaExceeded"
	expect := func(svc *corev1.Service, want string) {
		t.Helper()
		if text := w.says(svc, v1alpha1.ConditionServiceServed, no, reason); !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", svc.Name, text, want)
		}
	}
	if text := w.says(few, v1alpha1.ConditionServiceAllocated, no, reason); !strings.Contains(text, "300 ports are more than 256 (LoadBalancerGroup main, spec.services.maxPorts)") {
		t.Errorf("few: %q", text)
	}
	w.has(few, "")
	expect(pods, "spec.services.perNamespace.backends")
	expect(ranges[8], "spec.services.perNamespace.sourcePrefixes")
	expect(ranges[24], "spec.services.perNamespace.sourcePrefixes")
	expect(more[99], "spec.services.perNamespace.services")
	w.await("the node to serve what the controller says", func() error {
		names := map[string]bool{}
		for _, e := range n.of("noisy") {
			names[strings.Split(e.Service.Name, "/")[1]] = true
		}
		if len(names) != 60 || !names["ranges-07"] || names["ranges-08"] || !names["z051"] || names["z052"] {
			return fmt.Errorf("serves %d: %v", len(names), names)
		}
		return nil
	})
	t.Logf("a new endpoint with all: %s", follows())
	stopAsking()
	if wrong := <-answers; wrong != "" {
		t.Error(wrong)
	}

	// A Service that fits the quota again is served, and its condition shows it.
	w.edit(few, func() { few.Spec.Ports = few.Spec.Ports[:2] })
	w.says(few, v1alpha1.ConditionServiceServed, yes, "Served")
	w.await("few to be served", func() error {
		if len(n.of("noisy")) != 60 {
			return fmt.Errorf("%d services", len(n.of("noisy")))
		}
		return nil
	})
}
