// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source/kube"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// tenants is the cache of the node lb1, in the group main.
type tenants struct {
	*kube.Cache
	t testing.TB
}

func newTenants(t testing.TB, services int, change func(*v1alpha1.LoadBalancerGroup)) *tenants {
	w := &tenants{kube.NewCache(kube.Config{Node: "lb1", Limits: dataplanetest.Limits(), MaxServices: services, MaxBackends: 1 << 17}), t}
	w.Set(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lb1"}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}},
	}})
	w.Set(&v1alpha1.AddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "public"},
		Spec:       v1alpha1.AddressPoolSpec{Addresses: []v1alpha1.AddressRange{"198.51.100.0/24", "203.0.113.0/24"}},
	})
	w.group(change)
	return w
}

func (w *tenants) group(change func(*v1alpha1.LoadBalancerGroup)) {
	g := &v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	g.Spec.DataPlane.Forward = "nat"
	g.Status.Nodes = []v1alpha1.GroupNode{{Name: "lb1"}}
	change(g)
	w.Set(g)
}

// service sets a Service, the age of which is in seconds.
func (w *tenants) service(namespace, name, address string, age, ports int, ranges ...string) {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: namespace,
		CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000-int64(age), 0)),
	}}
	svc.Spec.Type, svc.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, ranges
	svc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionServiceServed, Status: metav1.ConditionTrue, Message: "main"}}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	for i := range ports {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(i), Port: int32(i + 1)})
	}
	w.Set(svc)
}

// served returns the objects with services, each once: "a/web b/web".
func (w *tenants) served() string {
	w.Flush()
	var names []string
	for _, s := range w.Services() {
		name := s.Name[:strings.LastIndex(s.Name, "/")]
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (w *tenants) expect(want string) {
	w.t.Helper()
	if got := w.served(); got != want {
		w.t.Errorf("served: %q, want %q; problems %v", got, want, w.Problems())
	}
}

// refuse sets a Service or LoadBalancer as the controller refuses it.
func (w *tenants) refuse(namespace, name, address string) {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	svc.Spec.Type, svc.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Port: 1}}
	svc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionServiceServed, Status: metav1.ConditionFalse, Reason: "QuotaExceeded", Message: "main"}}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	w.Set(svc)
}

// balancer sets a LoadBalancer that a group serves.
func (w *tenants) balancer(namespace, name, address, group string) {
	b := &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	b.Spec.Forward, b.Spec.Listeners = "nat", []v1alpha1.Listener{{Name: "l", Port: 1, Pool: "p"}}
	b.Spec.Pools = []v1alpha1.Pool{{Name: "p"}}
	b.Status.Address, b.Status.Group = address, group
	w.Set(b)
}

// A node serves the objects that the controller has admitted, whatever the group's bounds are: it
// decides nothing itself. A refused object is removed at once, and others don't change.
func TestObeysDecision(t *testing.T) {
	w := newTenants(t, 1<<16, func(g *v1alpha1.LoadBalancerGroup) { g.Spec.Services.PerNamespace.Services = 1 })
	w.service("a", "old", "198.51.100.9", 9, 3)
	w.service("a", "young", "198.51.100.1", 1, 2)
	w.service("b", "web", "198.51.100.5", 0, 5)
	w.balancer("a", "vm", "198.51.100.7", "main")
	w.expect("a/old a/young b/web flb:a/vm")
	w.refuse("a", "old", "198.51.100.9")
	w.balancer("a", "vm", "198.51.100.7", "")
	if c := w.Flush(); len(c.Removed) != 4 || len(c.Changed)+len(c.Leaving) > 0 {
		t.Errorf("change %+v, want four services removed", c)
	}
	w.expect("a/young b/web")
	if problems := w.Problems(); len(problems) > 0 {
		t.Errorf("problems of refused objects, which have the reason themselves: %v", problems)
	}
	w.service("a", "old", "198.51.100.9", 9, 3)
	w.balancer("a", "vm", "198.51.100.7", "main")
	w.expect("a/old a/young b/web flb:a/vm")
}

// A node serves the oldest objects of each namespace within its share of the room, and the oldest of
// all in the rest, whatever their addresses are and whatever it served before.
func TestNodeCapacity(t *testing.T) {
	w := newTenants(t, 3, func(*v1alpha1.LoadBalancerGroup) {})
	w.service("a", "low", "198.51.100.1", 1, 3)
	w.expect("a/low")
	w.service("b", "high", "198.51.100.200", 9, 2)
	w.expect("a/low b/high") // one of a/low
	if n := len(w.Services()); n != 3 {
		t.Errorf("%d services, want 3", n)
	}
	w.service("c", "higher", "198.51.100.201", 99, 1)
	w.expect("a/low b/high c/higher") // one of each
	w.service("c", "highest", "198.51.100.202", 999, 1)
	w.expect("a/low b/high c/highest")
	w.Delete(kube.Object{Kind: kube.KindService, Namespace: "c", Name: "highest"})
	w.Delete(kube.Object{Kind: kube.KindService, Namespace: "b", Name: "high"})
	w.expect("a/low c/higher")
}

// Old namespaces that grow to their quotas, in services, backends or source prefixes, take nothing of
// the share of a young one. They share the rest, and get it back.
func TestNodeShares(t *testing.T) {
	w := newTenants(t, 100, func(*v1alpha1.LoadBalancerGroup) {})
	var many, young, ranges []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255))
	}
	for i := range 4000 {
		ranges = append(ranges, fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255))
	}
	for i := range 4 {
		w.service(fmt.Sprint("old", i), "web", fmt.Sprintf("198.51.100.%d", i+1), 99, 50, ranges[:1000]...)
	}
	w.served()
	if n := len(w.Services()); n != 100 {
		t.Fatalf("%d services, want 100", n)
	}
	for i := range 20 {
		name := fmt.Sprintf("web%02d", i)
		w.service("young", name, fmt.Sprintf("198.51.100.%d", i+100), 0, 1, many...)
		young = append(young, "young/"+name)
	}
	w.expect("old0/web old1/web old2/web old3/web " + strings.Join(young, " "))
	w.service("young", "younger", "198.51.100.150", -1, 1)
	if got := w.served(); strings.Contains(got, "young/younger") {
		t.Error("a namespace has more than its share though others want theirs")
	}
	w.service("old0", "wide", "198.51.100.50", 999, 32, ranges...) // 32 × 4,001 prefixes
	if got := w.served(); !strings.Contains(got, strings.Join(young, " ")) {
		t.Errorf("served: %q, want all of the young namespace", got)
	}
}

// Services have their namespace and their age.
func TestServiceNamespace(t *testing.T) {
	w := newTenants(t, 1<<16, func(*v1alpha1.LoadBalancerGroup) {})
	w.service("a", "web", "198.51.100.1", 0, 1)
	w.Flush()
	want := lb.Service{Namespace: "a", Created: 1_700_000_000}
	if s := w.Services()[0]; s.Namespace != want.Namespace || s.Created != want.Created {
		t.Errorf("%+v", s)
	}
}

// However many objects are refused, the other namespace's services stay the same objects.
func TestManyRefused(t *testing.T) {
	w := newTenants(t, 1<<13, func(*v1alpha1.LoadBalancerGroup) {})
	w.service("quiet", "web", "198.51.100.250", 0, 2)
	w.expect("quiet/web")
	for i := range 2000 {
		w.refuse("noisy", fmt.Sprint("s", i), fmt.Sprintf("203.0.%d.%d", i/250, i%250+1))
	}
	if c := w.Flush(); !c.Empty() {
		t.Errorf("%d changed, %d removed", len(c.Changed), len(c.Removed))
	}
	if problems := w.Problems(); len(problems) > 0 {
		t.Errorf("%d problems", len(problems))
	}
}
