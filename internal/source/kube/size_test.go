// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source/kube"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// hugeCache has a Service of a group of this node with so many ports, all with the same name in
// its slices.
func hugeCache(ports, endpoints int, protocol corev1.Protocol) *kube.Cache {
	w := kube.NewCache(kube.Config{Node: "lb1", Limits: dataplanetest.Limits(), MaxServices: 1 << 20, MaxBackends: 1 << 17})
	w.Set(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lb1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}}}})
	group := &v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	group.Spec.DataPlane.Forward = "nat"
	group.Status.Nodes = []v1alpha1.GroupNode{{Name: "lb1"}}
	w.Set(group)
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "x"}}
	svc.Status.Conditions = served("main")
	w.Set(vips)
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
	var slicePorts []discoveryv1.EndpointPort
	for i := range ports {
		name := fmt.Sprintf("p%d", i)
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: name, Port: int32(i + 1), Protocol: protocol})
		slicePorts = append(slicePorts, discoveryv1.EndpointPort{Name: &name, Port: new(int32(8080)), Protocol: &protocol})
	}
	w.Set(svc)
	address := netip.MustParseAddr("10.0.0.0")
	for n := 0; n < endpoints; n += 1000 {
		es := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: fmt.Sprintf("s%d", n), Namespace: "x", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: slicePorts,
		}
		for range min(1000, endpoints-n) {
			address = address.Next()
			es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{address.String()}})
		}
		w.Set(es)
	}
	return w
}

func backends(all []lb.Service) (n int) {
	for i := range all {
		n += len(all[i].Backends)
	}
	return n
}

// The work for one Service, and the lines that its problems are in the log, are bounded.
func TestHugeService(t *testing.T) {
	const maxBackends, maxProblems = 1 << 17, 40
	for _, c := range []struct {
		ports, endpoints int
		protocol         corev1.Protocol
		services         int
	}{
		{10_000, 1, corev1.ProtocolTCP, 1000},
		{10_000, 65_535, corev1.ProtocolTCP, 0},
		{10_000, 1, corev1.ProtocolSCTP, 0},
		{128, 2000, corev1.ProtocolUDP, 65}, // 130,000 backends
		{128, 1000, corev1.ProtocolUDP, 128},
	} {
		w := hugeCache(c.ports, c.endpoints, c.protocol)
		changed := w.Flush().Changed
		if len(changed) != c.services || backends(changed) > maxBackends {
			t.Errorf("%+v: %d services with %d backends", c, len(changed), backends(changed))
		}
		problems := w.Problems()
		if n := len(problems); n == 0 && c.services < c.ports || n > maxProblems {
			t.Errorf("%+v: %d problems", c, n)
		}
		for _, p := range problems[:min(3, len(problems))] {
			t.Logf("%+v: %s", c, p)
		}
	}
}

// The VIPs of a Service that another one has are few problems, always the same.
func TestProblemsOfConflict(t *testing.T) {
	w := hugeCache(100, 1, corev1.ProtocolTCP)
	younger := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Name: "z", Namespace: "x", CreationTimestamp: metav1.Now(),
	}}
	younger.Status.Conditions = served("main")
	younger.Spec.Type = corev1.ServiceTypeLoadBalancer
	younger.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
	for i := range 100 {
		younger.Spec.Ports = append(younger.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(i), Port: int32(i + 1)})
	}
	w.Set(younger)
	w.Flush()
	first := fmt.Sprint(w.Problems())
	if n := len(w.Problems()); n == 0 || n > 40 {
		t.Errorf("%d problems", n)
	}
	for range 10 {
		if again := fmt.Sprint(w.Problems()); again != first {
			t.Fatalf("problems\n%s\nand\n%s", first, again)
		}
	}
}

// BenchmarkLocalPolicy translates a Service with traffic policy Local whose clients keep their pods,
// half of which are on this node.
func BenchmarkLocalPolicy(b *testing.B) {
	for _, endpoints := range []int{1000, 4000} {
		b.Run(fmt.Sprintf("endpoints=%d", endpoints), func(b *testing.B) {
			w := newTenants(b, 1<<16, func(g *v1alpha1.LoadBalancerGroup) {
				g.Spec.DataPlane.Forward = "dsr"
				g.Status.Nodes = append(g.Status.Nodes, v1alpha1.GroupNode{Name: "n2"})
			})
			w.node("n2", "192.0.2.12")
			svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"}}
			svc.Spec.Type, svc.Spec.ExternalTrafficPolicy, svc.Spec.SessionAffinity = corev1.ServiceTypeLoadBalancer, "Local", "ClientIP"
			svc.Spec.Ports = []corev1.ServicePort{{Name: "0", Port: 80}}
			svc.Status.Conditions = served("main")
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
			w.Set(svc)
			es := &discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Name: "web", Namespace: "a", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
				AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("0"), Port: new(int32(8080))}},
			}
			for i := range endpoints {
				a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
				es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.String()}, NodeName: new([]string{"lb1", "n2"}[i%2])})
			}
			w.Set(es)
			if n := backends(w.Flush().Changed); n != endpoints {
				b.Fatalf("%d backends, want %d: %v", n, endpoints, w.Problems())
			}
			b.ReportAllocs()
			for b.Loop() {
				w.Set(svc)
				w.Flush()
			}
		})
	}
}
