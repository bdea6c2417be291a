// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
)

// The usage covers all addresses and ports, and is bounded by the work for maxPorts.
func TestServiceUsage(t *testing.T) {
	g := &v1alpha1.LoadBalancerGroup{}
	b := spec.BoundsOf(g)
	svc := service("health-check=tcp")
	svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32"}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}, {IP: "2001:db8::1"}}
	svc.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "c", Port: 1, Protocol: corev1.ProtocolSCTP}}
	endpoints := spec.Endpoints{}
	add := func(kind discoveryv1.AddressType, n int, ports ...string) {
		es := &discoveryv1.EndpointSlice{AddressType: kind}
		for _, p := range ports {
			protocol := map[bool]corev1.Protocol{true: corev1.ProtocolUDP, false: corev1.ProtocolTCP}[p == "b"]
			es.Ports = append(es.Ports, discoveryv1.EndpointPort{Name: &p, Port: new(int32(80)), Protocol: &protocol})
		}
		es.Endpoints = make([]discoveryv1.Endpoint, n)
		endpoints.Add(spec.SlicePorts(es), spec.Usable(es))
	}
	add(discoveryv1.AddressTypeIPv4, 10, "a", "b")
	add(discoveryv1.AddressTypeIPv6, 5, "a")
	add(discoveryv1.AddressTypeFQDN, 7, "a")
	want := spec.Usage{Ports: 3, Ranges: 2, Services: 4, Backends: 25, SourcePrefixes: 3 + 3 + 2 + 2, Probes: 15}
	if got := b.ServiceUsage(svc, endpoints); got != want {
		t.Errorf("usage %+v, want %+v", got, want)
	}
	for i := range 300 {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(i), Port: int32(i + 100)})
	}
	if got := b.ServiceUsage(svc, endpoints); got != (spec.Usage{Ports: 303}) {
		t.Errorf("usage %+v of too many ports", got)
	}
}

// Objects that need IPVS are served where their group allows it.
func TestAllowsIPVS(t *testing.T) {
	pooled := func(p v1alpha1.Pool) *v1alpha1.LoadBalancer {
		return &v1alpha1.LoadBalancer{Spec: v1alpha1.LoadBalancerSpec{Pools: []v1alpha1.Pool{{}, p}}}
	}
	limited := v1alpha1.Member{MemberOptions: v1alpha1.MemberOptions{MaxConnections: 5}}
	for _, c := range []struct {
		object metav1.Object
		path   string
	}{
		{service("scheduler=lc"), "fairlead.io/scheduler"},
		{service("max-connections=5"), "fairlead.io/max-connections"},
		{service("scheduler=maglev"), ""},
		{pooled(v1alpha1.Pool{PoolOptions: v1alpha1.PoolOptions{Scheduler: "wrr"}}), "pools[1].scheduler"},
		{pooled(v1alpha1.Pool{MaxConnections: 5}), "pools[1].maxConnections"},
		{pooled(v1alpha1.Pool{Members: []v1alpha1.Member{{}, limited}}), "pools[1].members[1].maxConnections"},
		{pooled(v1alpha1.Pool{PoolOptions: v1alpha1.PoolOptions{Scheduler: "maglev"}}), ""},
	} {
		for allowed, want := range map[bool]string{false: c.path, true: ""} {
			g := &v1alpha1.LoadBalancerGroup{}
			g.Spec.DataPlane.IPVS = allowed
			bounds := spec.BoundsOf(g)
			claim := bounds.ClaimOf(c.object, nil)
			if _, path := bounds.AllowsIPVS(&claim); path != want {
				t.Errorf("%T, allowed: %t: refused is %q, want %q", c.object, allowed, path, want)
			}
			if refused := spec.Admit(map[string]spec.Bounds{"": bounds}, []spec.Claim{claim})[0]; (refused.Reason == "NoIPVS") != (want != "") {
				t.Errorf("%T with %q, allowed: %t: %+v", c.object, c.path, allowed, refused)
			}
		}
	}
}

// Refusals don't depend on the order in which objects come.
func TestAdmit(t *testing.T) {
	g := &v1alpha1.LoadBalancerGroup{}
	g.Spec.Services.PerNamespace = v1alpha1.NamespaceQuota{Services: 10, Backends: 100, SourcePrefixes: 100, Probes: 100}
	groups := map[string]spec.Bounds{"main": spec.BoundsOf(g)}
	claim := func(age int, name string, u spec.Usage) spec.Claim {
		return spec.Claim{Kind: "Service", Name: name, Created: time.Unix(int64(1000-age), 0), Group: "main", Usage: u}
	}
	claims := []spec.Claim{
		claim(9, "a", spec.Usage{Services: 6}),
		claim(8, "b", spec.Usage{Services: 5}), // doesn't fit
		claim(7, "c", spec.Usage{Services: 4, Backends: 101}),
		claim(6, "d", spec.Usage{Services: 4, Backends: 100}),
		claim(6, "e", spec.Usage{Services: 4}),
		claim(5, "f", spec.Usage{Ports: 250}), // uses nothing else
		claim(4, "g", spec.Usage{Ports: 257}),
		claim(3, "h", spec.Usage{Ranges: 4097}),
		claim(2, "i", spec.Usage{Probes: 101}),
		claim(1, "j", spec.Usage{SourcePrefixes: 101}),
	}
	for range 20 {
		rand.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
		var served []string
		for i, why := range spec.Admit(groups, claims) {
			if why == (spec.Refusal{}) {
				served = append(served, claims[i].Name)
			}
		}
		if slices.Sort(served); !slices.Equal(served, []string{"a", "d", "f"}) {
			t.Fatalf("served: %s, want adf", served)
		}
	}
}

// A list of 100,000 ranges, each twice, is read in no time.
func TestManySources(t *testing.T) {
	var ranges []string
	for i := range 100_000 {
		ranges = append(ranges, fmt.Sprintf("10.%d.%d.%d/32", i>>16, i>>8&255, i&255))
	}
	svc := service()
	svc.Spec.LoadBalancerSourceRanges = slices.Concat(ranges, ranges)
	svc.Spec.Ports = make([]corev1.ServicePort, 128)
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
	if u := spec.BoundsOf(&v1alpha1.LoadBalancerGroup{}).ServiceUsage(svc, nil); u.Ranges != 100_000 || u.SourcePrefixes != 128*100_001 {
		t.Errorf("usage %+v", u)
	}
}
