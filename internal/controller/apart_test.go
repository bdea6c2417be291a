// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/test/fuzzrand"
)

// apartHistory writes random objects of three namespaces.
type apartHistory struct {
	*testCluster
	rand *rand.Rand
}

// apartNamespaces are the namespaces, of which the first is looked at. Each requests addresses of its own only.
func apartNamespaces() []string { return []string{"default", "one", "two"} }

// TestAPIServerNamespacesApart has tenants of three namespaces write Services and LoadBalancers, with annotations,
// finalizers, classes and statuses of others, and more than their quotas allow: the decisions about the objects of
// one namespace stays the same when the others delete all of theirs.
func TestAPIServerNamespacesApart(t *testing.T) {
	const histories, steps = 4, 60
	w := newTestCluster(t)
	seed := fuzzrand.Seed(t)
	h := &apartHistory{testCluster: w, rand: rand.New(rand.NewPCG(seed, seed))}
	for _, name := range apartNamespaces()[1:] {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w.node("n1", map[string]string{"lb": "g"})
	g := w.group("g", 1)
	w.edit(g, func() {
		g.Spec.Services.MaxPorts, g.Spec.Services.PerNamespace.Services, g.Spec.Services.PerNamespace.Backends = 3, 4, 8
		g.Spec.DataPlane.FirewallMarkMask = 0xff00
		g.Spec.LoadBalancers.MemberNetworks = []v1alpha1.CIDR{"10.0.0.0/24"}
		g.Spec.LoadBalancers.Segments = []v1alpha1.SegmentRange{{Type: "vlan", First: 7}}
	})
	w.pool("main", "192.0.2.0/24")
	w.run(auto)
	all := ""
	for i := range histories {
		for range steps {
			h.step(h.rand.IntN(4) % 3) // half of all in the first namespace
		}
		among := h.settle()
		all += among
		for _, namespace := range apartNamespaces()[1:] {
			h.clear(namespace)
		}
		if alone := h.settle(); alone != among {
			t.Errorf("history %d: among others\n%s\nalone\n%s", i, among, alone)
		}
		h.clear("default")
	}
	for _, want := range []string{"Served: ", "QuotaExceeded: its services"} {
		if !strings.Contains(all, want) {
			t.Errorf("no object has %s in\n%s", want, all)
		}
	}
	fuzzrand.Covered(t, histories, histories*steps)
}

// step does one operation in the namespace with a number.
func (h *apartHistory) step(number int) {
	namespace, name := apartNamespaces()[number], fmt.Sprintf("o%d", h.rand.IntN(12))
	var err error
	switch n := h.rand.IntN(10); {
	case n < 5:
		err = h.Create(h.Context(), h.service(number, name))
	case n < 7:
		err = h.Create(h.Context(), h.loadBalancer(number, name))
	case n < 8:
		err = h.Delete(h.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	case n < 9:
		err = h.Delete(h.Context(), &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	default:
		err = h.writeStatus(number, name)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		h.Error(err)
	}
}

// service is a random Service.
func (h *apartHistory) service(number int, name string) *corev1.Service {
	own := netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + 10*number + h.rand.IntN(4))})
	annotations := []string{
		"addresses=" + own.String(), "sharing-key=k", "address-pool=main", "address-pool=none", "forward=nat", "scheduler=rr",
		"firewall-mark=1", "health-check=tcp", "unknown=x", "new-flows=10",
	}
	h.rand.Shuffle(len(annotations), func(i, j int) { annotations[i], annotations[j] = annotations[j], annotations[i] })
	svc := newService(name, annotations[:h.rand.IntN(3)]...)
	svc.Namespace = apartNamespaces()[number]
	for i := range h.rand.IntN(4) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(81 + i)})
	}
	svc.Spec.Ports[0].Name = "first"
	switch h.rand.IntN(6) {
	case 0, 1:
		svc.Spec.LoadBalancerClass = nil
	case 2:
		svc.Spec.LoadBalancerClass, svc.Finalizers = nil, []string{"service.kubernetes.io/load-balancer-cleanup"}
	case 3:
		svc.Annotations["metallb.io/loadBalancerIPs"] = own.String()
	}
	return svc
}

// loadBalancer is a random LoadBalancer.
func (h *apartHistory) loadBalancer(number int, name string) *v1alpha1.LoadBalancer {
	pick := func(all ...v1alpha1.IPAddress) v1alpha1.IPAddress { return all[h.rand.IntN(len(all))] }
	b := &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: apartNamespaces()[number], Name: name}, Spec: v1alpha1.LoadBalancerSpec{
		Forward:   "nat",
		Listeners: []v1alpha1.Listener{{Name: "http", Port: 80, Pool: "web"}},
		Pools:     []v1alpha1.Pool{{Name: "web", Members: []v1alpha1.Member{{Address: pick("10.0.0.1", "10.0.1.1", "192.0.2.3"), Port: 80}}}},
	}}
	switch h.rand.IntN(4) {
	case 0:
		b.Spec.Segment, b.Spec.Address = &v1alpha1.Segment{Type: "vlan", ID: 7 + int64(h.rand.IntN(2))}, v1alpha1.IPAddress(fmt.Sprintf("198.51.100.%d", number))
	case 1:
		b.Spec.FirewallMark = 1
	}
	return b
}

// writeStatus has a tenant write the status of a Service, where other controllers would write.
func (h *apartHistory) writeStatus(number int, name string) error {
	var svc corev1.Service
	if err := h.Get(h.Context(), client.ObjectKey{Namespace: apartNamespaces()[number], Name: name}, &svc); err != nil {
		return err
	}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("192.0.2.%d", 200+10*number+h.rand.IntN(3))}}
	return h.Status().Update(h.Context(), &svc)
}

// settle waits until all objects of the first namespace are decided about, also a Service that comes after all others
// for quotas and a LoadBalancer that takes nothing of them, and nothing changes any more.
func (h *apartHistory) settle() (shown string) {
	h.Helper()
	svc := newService("probe")
	b := h.balancer("probe", func(b *v1alpha1.LoadBalancer) { b.Spec.Listeners = nil })
	h.create(svc)
	h.await("all objects to be decided about", func() error {
		now, undecided := h.read()
		if _, left := reconciliations(h.TB); left > 0 || len(undecided) > 0 {
			return fmt.Errorf("%.0f objects are left, undecided are %q", left, undecided)
		}
		if now != shown {
			shown = now
			return errors.New("they have changed")
		}
		return nil
	})
	h.remove(svc)
	h.remove(b)
	return shown
}

// clear deletes all objects of a namespace.
func (h *apartHistory) clear(namespace string) {
	h.Helper()
	var services corev1.ServiceList
	if err := h.List(h.Context(), &services, client.InNamespace(namespace)); err != nil {
		h.Fatal(err)
	}
	for i := range services.Items {
		svc := &services.Items[i]
		if svc.Name == "kubernetes" {
			continue
		}
		if i := slices.Index(svc.Finalizers, "service.kubernetes.io/load-balancer-cleanup"); i >= 0 {
			h.edit(svc, func() { svc.Finalizers = nil })
		}
		if err := h.Delete(h.Context(), svc); client.IgnoreNotFound(err) != nil {
			h.Fatal(err)
		}
	}
	if err := h.DeleteAllOf(h.Context(), &v1alpha1.LoadBalancer{}, client.InNamespace(namespace)); err != nil {
		h.Fatal(err)
	}
}

// anyAddress are addresses that were chosen: they may be other ones where there are other namespaces.
var anyAddress = regexp.MustCompile(`192\.0\.2\.[0-9]+`)

// read returns all that the controller says of the objects of the first namespace, and those that it hasn't decided
// about.
func (h *apartHistory) read() (shown string, undecided []string) {
	h.Helper()
	var out strings.Builder
	var services corev1.ServiceList
	var balancers v1alpha1.LoadBalancerList
	for _, list := range []client.ObjectList{&services, &balancers} {
		if err := h.List(h.Context(), list, client.InNamespace(apartNamespaces()[0])); err != nil {
			h.Fatal(err)
		}
	}
	// add writes an object with its conditions, unless it is settle's. The first condition says whether it has an address:
	// only then it has all of them.
	add := func(o client.Object, ours bool, all []metav1.Condition, kinds []string, text ...any) {
		lines := fmt.Sprintln(append([]any{fmt.Sprintf("%T", o), o.GetName()}, text...)...)
		allocated := apimeta.FindStatusCondition(all, kinds[0])
		for _, kind := range kinds {
			if c := apimeta.FindStatusCondition(all, kind); c != nil {
				lines += fmt.Sprintf("  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
			} else if ours && (allocated == nil || allocated.Status == yes) {
				undecided = append(undecided, o.GetName()+" "+kind)
			}
		}
		if o.GetName() != "probe" {
			out.WriteString(lines)
		}
	}
	for _, svc := range services.Items {
		kinds := []string{v1alpha1.ConditionServiceAllocated, v1alpha1.ConditionServiceAccepted, v1alpha1.ConditionServiceServed}
		// Without class, status and finalizer of others it is claimed after a while.
		ours := svc.Spec.LoadBalancerClass != nil || apimeta.FindStatusCondition(svc.Status.Conditions, kinds[0]) != nil ||
			svc.Spec.Type == corev1.ServiceTypeLoadBalancer && len(svc.Finalizers)+len(svc.Status.LoadBalancer.Ingress) == 0
		text := []any{svc.Annotations}
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			text = append(text, ingress.IP, ingress.Hostname)
		}
		add(&svc, ours, svc.Status.Conditions, kinds, text...)
	}
	for _, b := range balancers.Items {
		add(&b, true, b.Status.Conditions, []string{v1alpha1.ConditionAllocated, v1alpha1.ConditionReady},
			b.Status.Address, b.Status.Group, b.Status.Listeners, b.Status.Pools)
	}
	return anyAddress.ReplaceAllString(out.String(), "ADDRESS"), undecided
}
