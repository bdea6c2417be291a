// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

func keyOf(o client.Object) types.NamespacedName { return client.ObjectKeyFromObject(o) }

// waitForNextSecond returns when what is created now is younger than an object:
// timestamps have whole seconds.
func (w *world) waitForNextSecond(than client.Object) time.Time {
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
func (w *world) balancer(name string, change func(*v1alpha1.LoadBalancer)) *v1alpha1.LoadBalancer {
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

// owners watches all Services, in the order in which the API server changed them, and
// notes every moment in which two own one address and port.
type owners struct {
	w      *world
	cancel context.CancelFunc
	done   chan struct{}

	mu sync.Mutex
	// services are what each Service's last version shows, as "address port protocol".
	services map[string][]string
	// seen is how many versions were looked at.
	seen       int
	violations []string
}

func (w *world) watchOwners() *owners {
	w.Helper()
	clients, err := kubernetes.NewForConfig(w.api.Config())
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	all, err := clients.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	events, err := clients.CoreV1().Services("").Watch(ctx, metav1.ListOptions{ResourceVersion: all.ResourceVersion})
	if err != nil {
		w.Fatal(err)
	}
	o := &owners{w: w, cancel: cancel, done: make(chan struct{}), services: map[string][]string{}}
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

func (o *owners) see(svc *corev1.Service, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen++
	name := svc.Namespace + "/" + svc.Name
	delete(o.services, name)
	if gone {
		return
	}
	var has []string
	for _, i := range svc.Status.LoadBalancer.Ingress {
		for _, p := range svc.Spec.Ports {
			has = append(has, fmt.Sprintf("%s %d %s", i.IP, p.Port, p.Protocol))
		}
	}
	for other, theirs := range o.services {
		for _, one := range has {
			for _, two := range theirs {
				if one == two {
					o.violations = append(o.violations, fmt.Sprintf("%s and %s have %s", name, other, one))
				}
			}
		}
	}
	if len(has) > 0 {
		o.services[name] = has
	}
}

// check fails the test if two owned the same at any time until now.
func (o *owners) check() {
	o.w.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.violations) > 0 {
		o.w.Errorf("two owners %d times in %d versions:\n%s", len(o.violations), o.seen, strings.Join(o.violations, "\n"))
	}
}
