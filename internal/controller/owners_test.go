// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

func keyOf(o client.Object) types.NamespacedName { return client.ObjectKeyFromObject(o) }

// waitForNextSecond returns when new objects are younger than an object: timestamps have whole
// seconds.
func (w *testCluster) waitForNextSecond(than client.Object) time.Time {
	w.Helper()
	created := than.GetCreationTimestamp().Time
	w.await("the next second", func() error {
		if !time.Now().Truncate(time.Second).After(created) {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	return created
}

// balancer makes a LoadBalancer with one listener.
func (w *testCluster) balancer(name string, change func(*v1alpha1.LoadBalancer)) *v1alpha1.LoadBalancer {
	w.Helper()
	b := &v1alpha1.LoadBalancer{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1alpha1.LoadBalancerSpec{
			Forward:   "l2dsr",
			Listeners: []v1alpha1.Listener{{Name: "http", Port: 80, Pool: "web"}},
			Pools:     []v1alpha1.Pool{{Name: "web", Members: []v1alpha1.Member{{Address: "10.0.0.1", Port: 80}}}},
		},
	}
	if change != nil {
		change(b)
	}
	w.create(b)
	return b
}

// natBalancer makes a LoadBalancer with one listener, and this member.
func (w *testCluster) natBalancer(name string, member v1alpha1.IPAddress) *v1alpha1.LoadBalancer {
	w.Helper()
	return w.balancer(name, func(b *v1alpha1.LoadBalancer) {
		b.Spec.Forward, b.Spec.Pools[0].Members[0].Address = "nat", member
	})
}

// tenant has the properties of a Service that decide with which Services it may share an address.
type tenant struct {
	key   string
	ports []string
}

func tenantOf(svc *corev1.Service) tenant {
	t := tenant{key: svc.Annotations[v1alpha1.AnnotationSharingKey]}
	for _, p := range svc.Spec.Ports {
		t.ports = append(t.ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
	}
	return t
}

// quarrels reports whether two can't be on one address.
func (t tenant) quarrels(o tenant) bool {
	return t.key == "" || t.key != o.key || slices.ContainsFunc(t.ports, func(p string) bool { return slices.Contains(o.ports, p) })
}

// owners watches all Services, in the order in which the API server changed them, and records each
// time that an address is assigned to a Service that can't share it with another owner. The
// controller can't prevent an edit of ports or keys that ends the sharing of two Services: a
// Service is compared by all its versions since it has the address.
type owners struct {
	*testCluster
	cancel context.CancelFunc
	done   chan struct{}

	mu sync.Mutex
	// tenants are the Services that show an address, by address and name, with all that
	// they said since.
	tenants map[string]map[string][]tenant
	// seen is how many versions were looked at, given how many addresses were given.
	seen, given int
	violations  []string
}

func (w *testCluster) watchOwners() *owners {
	w.Helper()
	clients := w.api.Clients().CoreV1().Services("")
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	all, err := clients.List(ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	events, err := clients.Watch(ctx, metav1.ListOptions{ResourceVersion: all.ResourceVersion})
	if err != nil {
		w.Fatal(err)
	}
	o := &owners{testCluster: w, cancel: cancel, done: make(chan struct{}), tenants: map[string]map[string][]tenant{}}
	for i := range all.Items {
		o.see(&all.Items[i], false)
	}
	go func() {
		defer close(o.done)
		for e := range events.ResultChan() {
			if svc, is := e.Object.(*corev1.Service); is {
				o.see(svc, e.Type == watch.Deleted)
			}
		}
	}()
	w.Cleanup(func() { cancel(); <-o.done })
	return o
}

// counts says how many versions of Services there were, and addresses given.
func (o *owners) counts() (seen, given int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen, o.given
}

// see takes a version of a Service.
func (o *owners) see(svc *corev1.Service, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen++
	shown := map[string]bool{}
	for _, i := range svc.Status.LoadBalancer.Ingress {
		shown[i.IP] = !gone
	}
	for address, there := range o.tenants {
		if !shown[address] {
			delete(there, svc.Name)
		}
	}
	for address, is := range shown {
		if is {
			o.show(address, svc.Name, tenantOf(svc))
		}
	}
}

func (o *owners) show(address, name string, t tenant) {
	there := o.tenants[address]
	if there == nil {
		there = map[string][]tenant{}
		o.tenants[address] = there
	}
	if there[name] == nil {
		o.given++
		for other, said := range there {
			if !slices.ContainsFunc(said, func(s tenant) bool { return !t.quarrels(s) }) {
				o.violations = append(o.violations, fmt.Sprintf("%s is given to %s, %+v, and to %s, %+v", address, name, t, other, said))
			}
		}
	}
	there[name] = append(there[name], t)
}

// check fails the test if two owned the same at any time until now.
func (o *owners) check() {
	o.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.violations) > 0 {
		o.Errorf("two owners %d times in %d versions:\n%s", len(o.violations), o.seen, strings.Join(o.violations, "\n"))
	}
	if o.given == 0 {
		o.Error("no address was given to anybody: the test proves nothing")
	}
}

// alone says which two own one address and port now, of Services as they are.
func alone(all []corev1.Service) error {
	for i := range all {
		for j := range i {
			if !tenantOf(&all[i]).quarrels(tenantOf(&all[j])) {
				continue
			}
			for _, one := range all[i].Status.LoadBalancer.Ingress {
				if slices.ContainsFunc(all[j].Status.LoadBalancer.Ingress, func(two corev1.LoadBalancerIngress) bool { return one.IP == two.IP }) {
					return fmt.Errorf("%s and %s have %s", all[i].Name, all[j].Name, one.IP)
				}
			}
		}
	}
	return nil
}
