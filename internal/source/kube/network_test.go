// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/source/kube"
)

// endpoint sets the only EndpointSlice of a Service with the port "0".
func (w *tenants) endpoint(namespace, service string, addresses ...string) {
	es := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("0"), Port: new(int32(8080))}},
	}
	for _, a := range addresses {
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	w.Set(es)
}

// node sets a Node, with its InternalIP.
func (w *tenants) node(name, address string) {
	w.Set(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
	}})
}

// An endpoint at an address of a pool is a backend as soon as that is known to be a node's, and as
// long as it is; it is one problem otherwise, also if it is a VIP.
func TestNodeInPool(t *testing.T) {
	w := newTenants(t, 1<<16, func(g *v1alpha1.LoadBalancerGroup) {
		g.Spec.LoadBalancers = v1alpha1.LoadBalancerPolicy{MemberNetworks: []v1alpha1.CIDR{"0.0.0.0/0"}, ClusterNetworks: []string{"Node"}}
	})
	w.service("a", "web", "198.51.100.1", 0, 1)
	w.endpoint("a", "web", "198.51.100.9")
	b := &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm"}}
	b.Spec.Forward, b.Status.Address, b.Status.Group = "nat", "198.51.100.2", "main"
	b.Spec.Listeners = []v1alpha1.Listener{{Name: "l", Port: 80, Pool: "p"}}
	b.Spec.Pools = []v1alpha1.Pool{{Name: "p", Members: []v1alpha1.Member{{Address: "198.51.100.9", Port: 80}}}}
	w.Set(b)
	expect := func(what string, want int, problem string) {
		t.Helper()
		w.Flush()
		if got := backends(w.Services()); got != want {
			t.Errorf("%s: %d backends, want %d", what, got, want)
		}
		problems := w.Problems()
		if len(problems) != 2-want {
			t.Errorf("%s: problems %v, want %d", what, problems, 2-want)
		}
		for _, p := range problems {
			if !strings.Contains(p.Message, problem) {
				t.Errorf("%s: %s, want %q", what, p, problem)
			}
		}
	}
	expect("without node", 0, "198.51.100.9 is in an AddressPool")
	w.node("n2", "198.51.100.9")
	expect("with node", 2, "")
	w.node("n2", "198.51.100.10")
	expect("with another address", 0, "198.51.100.9 is in an AddressPool")
	w.node("n3", "198.51.100.9")
	expect("with another node", 2, "")
	w.Delete(kube.Object{Kind: kube.KindNode, Name: "n3"})
	w.service("b", "vip", "198.51.100.9", 0, 1)
	w.Flush()
	expect("at a VIP", 0, "198.51.100.9 is the address of a VIP")
}

// BenchmarkClusterIP adds the cluster IP of a Service to 5,000 others, and removes it, next to
// LoadBalancers whose policy refers to them.
func BenchmarkClusterIP(b *testing.B) {
	for _, balancers := range []int{0, 1000} {
		b.Run(fmt.Sprintf("LoadBalancers=%d", balancers), func(b *testing.B) {
			w := newTenants(b, 1<<16, func(g *v1alpha1.LoadBalancerGroup) {
				g.Spec.Services.PerNamespace.Services = 1 << 20
				g.Spec.LoadBalancers = v1alpha1.LoadBalancerPolicy{MemberNetworks: []v1alpha1.CIDR{"10.0.0.0/8"}}
			})
			for i := range balancers {
				one := &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint(i)}}
				one.Spec.Forward, one.Status.Address, one.Status.Group = "nat", fmt.Sprintf("198.51.100.%d", i%250), "main"
				one.Spec.Listeners = []v1alpha1.Listener{{Name: "l", Port: int32(1 + i), Pool: "p"}}
				members := v1alpha1.Pool{Name: "p"}
				for m := range 32 {
					a := netip.AddrFrom4([4]byte{10, byte(i), byte(i >> 8), byte(m)})
					members.Members = append(members.Members, v1alpha1.Member{Address: v1alpha1.IPAddress(a.String()), Port: 80})
				}
				one.Spec.Pools = []v1alpha1.Pool{members}
				w.Set(one)
			}
			svc := func(i int) *corev1.Service {
				s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("internal", i)}}
				s.Spec.ClusterIPs = []string{netip.AddrFrom4([4]byte{10, 250, byte(i >> 8), byte(i)}).String()}
				return s
			}
			for i := range 5000 {
				w.Set(svc(i))
			}
			if n := len(w.Flush().Changed); n != balancers {
				b.Fatalf("%d services, want %d", n, balancers)
			}
			b.ReportAllocs()
			for b.Loop() {
				w.Set(svc(5000))
				w.Flush()
				w.Delete(kube.Object{Kind: kube.KindService, Namespace: "a", Name: "internal5000"})
				w.Flush()
			}
		})
	}
}
