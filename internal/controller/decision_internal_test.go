// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/internal/spec"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fuzzrand"
)

// tenantsCluster has the objects of three namespaces, their controller and a node of their group.
type tenantsCluster struct {
	client.Client
	*deps
	*testing.T
	rand     *rand.Rand
	group    *v1alpha1.LoadBalancerGroup
	objects  map[alloc.Owner]client.Object
	changing map[string]bool
	node     *kube.Cache
	created  int64
}

func (c *tenantsCluster) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	for _, owner := range slices.SortedFunc(maps.Keys(c.objects), alloc.Owner.Compare) {
		if owner.Namespace != o.Namespace {
			continue
		}
		switch l := list.(type) {
		case *corev1.ServiceList:
			if svc, is := c.objects[owner].(*corev1.Service); is {
				l.Items = append(l.Items, *svc)
			}
		case *v1alpha1.LoadBalancerList:
			if b, is := c.objects[owner].(*v1alpha1.LoadBalancer); is {
				l.Items = append(l.Items, *b)
			}
		}
	}
	return nil
}

// change changes the group, or creates, changes or deletes an object.
func (c *tenantsCluster) change() {
	if c.rand.IntN(20) == 0 {
		c.group = c.group.DeepCopy()
		c.group.Spec.Services.MaxPorts, c.group.Spec.Services.PerNamespace.Services = 2+c.rand.Int32N(3), 3+c.rand.Int32N(8)
		c.node.Set(c.group)
		for owner := range c.objects {
			c.changing[owner.Namespace] = true
		}
		return
	}
	kind := []string{kindService, kindLoadBalancer}[c.rand.IntN(2)]
	owner := alloc.Owner{Kind: kind, Namespace: fmt.Sprintf("n%d", c.rand.IntN(3)), Name: fmt.Sprintf("o%d", c.rand.IntN(5))}
	c.changing[owner.Namespace] = true
	before := c.objects[owner]
	if before != nil && c.rand.IntN(4) == 0 {
		delete(c.objects, owner)
		c.groups.delete(owner)
		c.node.Delete(kube.Object{Kind: kube.Kind(kind), Namespace: owner.Namespace, Name: owner.Name})
		return
	}
	c.created++
	m := metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name, Generation: c.created, CreationTimestamp: metav1.NewTime(time.Unix(c.created/3, 0))}
	if before != nil {
		m.CreationTimestamp = before.GetCreationTimestamp()
	}
	ports := 1 + c.rand.IntN(4)
	// The address is always the same one: the allocator has tests of its own.
	address := fmt.Sprintf("198.51.100.%d", 1+100*(len(kind)%2)+10*int(owner.Namespace[1]-'0')+int(owner.Name[1]-'0'))
	if kind == kindService {
		svc := &corev1.Service{ObjectMeta: m}
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		for i := range ports {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(i + 1)})
		}
		if before != nil {
			svc.Status = before.(*corev1.Service).Status
		}
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
		c.objects[owner] = svc
	} else {
		b := &v1alpha1.LoadBalancer{ObjectMeta: m, Spec: v1alpha1.LoadBalancerSpec{Forward: "nat", Pools: []v1alpha1.Pool{{Name: "p"}}}}
		for i := range ports {
			b.Spec.Listeners = append(b.Spec.Listeners, v1alpha1.Listener{Name: fmt.Sprint("p", i), Port: int32(i + 1), Pool: "p"})
		}
		if before != nil {
			b.Status = before.(*v1alpha1.LoadBalancer).Status
		}
		b.Status.Address = address
		c.objects[owner] = b
	}
	c.groups.restore(owner, c.group.Name)
}

// reconcile decides about the namespaces that have changed, and writes the statuses of their objects.
func (c *tenantsCluster) reconcile() {
	bounds := map[string]spec.Bounds{c.group.Name: spec.BoundsOf(c.group)}
	for namespace := range c.changing {
		now, err := quotaReconciler{c.deps}.decide(c.Context(), namespace, bounds)
		if err != nil {
			c.Fatal(err)
		}
		c.quotas.replace(namespace, now)
	}
	clear(c.changing)
	for owner, object := range c.objects {
		object = object.DeepCopyObject().(client.Object)
		switch o := object.(type) {
		case *corev1.Service:
			for _, one := range (serviceReconciler{c.deps}).decided(o, allocation{Addresses: service{o}.shown()}) {
				set(&o.Status.Conditions, one)
			}
		case *v1alpha1.LoadBalancer:
			balancerReconciler{c.deps}.decide(o, allocation{Addresses: balancer{o}.shown()})
		}
		c.objects[owner] = object
		c.node.Set(object)
	}
}

// agree checks that statuses and the node agree with the decision, in whichever order objects come.
func (c *tenantsCluster) agree() {
	bounds := map[string]spec.Bounds{c.group.Name: spec.BoundsOf(c.group)}
	claims, owners := map[string][]spec.Claim{}, map[string][]alloc.Owner{}
	for owner, object := range c.objects {
		claims[owner.Namespace] = append(claims[owner.Namespace], bounds[c.group.Name].ClaimOf(object, nil))
		owners[owner.Namespace] = append(owners[owner.Namespace], owner)
	}
	var want []string
	for namespace := range claims {
		for i, why := range spec.Admit(bounds, claims[namespace]) {
			owner := owners[namespace][i]
			if served := spec.ServedBy(c.objects[owner]) != ""; served != (why == spec.Refusal{}) {
				c.Errorf("%s: served %t, refused %q", owner, served, why)
			} else if served {
				want = append(want, owner.String())
			}
		}
	}
	c.node.Flush()
	served := map[string]bool{}
	for _, s := range c.node.Services() {
		kind, namespace, name := spec.ObjectOf(s.Name)
		served[alloc.Owner{Kind: kind, Namespace: namespace, Name: name}.String()] = true
	}
	if got := slices.Sorted(maps.Keys(served)); strings.Join(got, ", ") != strings.Join(slices.Sorted(slices.Values(want)), ", ") {
		c.Errorf("the node serves %q, want %q", got, want)
	}
}

// After random histories of three namespaces, under bounds that change, the controller's statuses
// and the node's translation are as spec.Admit decides.
func TestHistoriesAgree(t *testing.T) {
	const steps = 400
	group := &v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Status: v1alpha1.LoadBalancerGroupStatus{Nodes: []v1alpha1.GroupNode{{Name: "lb1"}}}}
	group.Spec.Services.PerNamespace.Services = 5
	c := &tenantsCluster{
		T: t, rand: rand.New(rand.NewPCG(fuzzrand.Seed(t), 0)), group: group, objects: map[alloc.Owner]client.Object{}, changing: map[string]bool{},
		deps: newDeps(Options{DefaultClass: DefaultClassAlways, Log: slog.New(slog.DiscardHandler)}),
		node: kube.NewCache(kube.Config{Node: "lb1", Limits: dataplanetest.Limits(), MaxServices: 1 << 10, MaxBackends: 1 << 10}),
	}
	c.deps.Client = c
	c.policies.set(map[string]spec.Policy{group.Name: {}}, spec.NewNetworks())
	c.node.Set(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lb1"}})
	c.node.Set(&v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "vips"}, Spec: v1alpha1.AddressPoolSpec{Addresses: []v1alpha1.AddressRange{"198.51.100.0/24"}}})
	c.node.Set(group)
	for step := range steps {
		c.change()
		if c.rand.IntN(3) > 0 { // else several changes are decided together
			c.reconcile()
			c.agree()
		}
		if t.Failed() {
			t.Fatalf("after step %d", step)
		}
	}
	fuzzrand.Covered(t, 1, steps)
}
