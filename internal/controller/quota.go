// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/spec"
)

// reasonIntervalRaised is why a Service's condition Accepted is false though it is served.
const reasonIntervalRaised = "IntervalRaised"

// quotaDelay batches changes of a namespace's objects, membersDelay changes of endpoints and
// members, which are frequent and rarely matter.
const (
	quotaDelay   = 100 * time.Millisecond
	membersDelay = time.Second
)

// quotaReconciler decides which objects of a namespace are beyond the bounds of their groups. A
// request is the name of a namespace. Nodes serve the others only (spec.ServedBy).
type quotaReconciler struct{ *deps }

// quotas are the last decisions about all namespaces.
type quotas struct {
	mu         sync.Mutex
	namespaces map[string]map[alloc.Owner]bounded
}

// bounded is the effect of a group's bounds on an object: the reason why it is refused, and the
// reason why its health checks have another interval; both are empty for most objects.
type bounded struct {
	refused spec.Refusal
	raised  string
	// group and addresses are those for which that was decided.
	group, addresses string
}

// of returns the decision about an owner that a group serves at these addresses. It has not been
// decided before the namespace's other objects are known.
func (q *quotas) of(owner alloc.Owner, group string, addresses []netip.Addr) (b bounded, decided bool) {
	if group == "" {
		return bounded{}, true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	b = q.namespaces[owner.Namespace][owner]
	return b, b.group == group && b.addresses == list(addresses)
}

// replace sets the decisions about a namespace, and returns the owners with another one than
// before.
func (q *quotas) replace(namespace string, now map[alloc.Owner]bounded) (changed []alloc.Owner) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changed = changedOwners(q.namespaces[namespace], now, func(a, b bounded) bool { return a == b })
	if q.namespaces[namespace] = now; len(now) == 0 {
		delete(q.namespaces, namespace)
	}
	return changed
}

// quotaRequests maps an object to the request of its namespace, or of all namespaces for a group.
func (o *deps) quotaRequests() handler.EventHandler {
	enqueue := func(ctx context.Context, object client.Object, delay time.Duration) {
		if _, is := object.(*discoveryv1.EndpointSlice); is {
			delay = membersDelay
		}
		if object.GetNamespace() != "" {
			o.enqueueQuota(object.GetNamespace(), delay)
			return
		}
		namespaces := namespaceList()
		if err := o.List(ctx, namespaces); err != nil {
			o.log.Warn("namespaces not listed", "error", err)
			return
		}
		for i := range namespaces.Items {
			o.enqueueQuota(namespaces.Items[i].Name, delay)
		}
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ queue) { enqueue(ctx, e.Object, quotaDelay) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ queue) { enqueue(ctx, e.Object, quotaDelay) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ queue) {
			delay := quotaDelay
			if b, is := e.ObjectNew.(*v1alpha1.LoadBalancer); is && b.Status.Address == e.ObjectOld.(*v1alpha1.LoadBalancer).Status.Address {
				delay = membersDelay
			}
			enqueue(ctx, e.ObjectNew, delay)
		},
	}
}

// quotaChanged reports whether an update of an object changes its usage, or bounds. Other endpoints
// in the same number don't.
func (o *deps) quotaChanged(before, now client.Object) bool {
	same := equality.Semantic.DeepEqual
	switch n := now.(type) {
	case *corev1.Service:
		old := before.(*corev1.Service)
		return o.isOurs(n) != o.isOurs(old) || !same(n.Spec, old.Spec) || !maps.Equal(n.Annotations, old.Annotations) ||
			!same(n.Status.LoadBalancer, old.Status.LoadBalancer)
	case *v1alpha1.LoadBalancer:
		return n.Generation != before.GetGeneration() || n.Status.Address != before.(*v1alpha1.LoadBalancer).Status.Address
	case *discoveryv1.EndpointSlice:
		return !maps.Equal(n.Annotations, before.GetAnnotations()) || !maps.Equal(n.Labels, before.GetLabels()) ||
			!same(n.Ports, before.(*discoveryv1.EndpointSlice).Ports)
	}
	return now.GetGeneration() != before.GetGeneration()
}

// enqueueQuota triggers the decision about a namespace after a delay.
func (o *deps) enqueueQuota(namespace string, delay time.Duration) {
	o.namespaces.enqueueAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}}, delay)
}

func (r quotaReconciler) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var groups v1alpha1.LoadBalancerGroupList
	if err := r.List(ctx, &groups); err != nil {
		return reconcile.Result{}, err
	}
	bounds := map[string]spec.Bounds{}
	for i := range groups.Items {
		bounds[groups.Items[i].Name] = spec.BoundsOf(&groups.Items[i])
	}
	now, err := r.decide(ctx, request.Name, bounds)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, owner := range r.quotas.replace(request.Name, now) {
		r.enqueueOwner(owner, 0)
	}
	return reconcile.Result{}, nil
}

// decide returns the effect of groups' bounds on the objects of a namespace.
func (r quotaReconciler) decide(ctx context.Context, namespace string, bounds map[string]spec.Bounds) (map[alloc.Owner]bounded, error) {
	var services corev1.ServiceList
	var balancers v1alpha1.LoadBalancerList
	for _, l := range []client.ObjectList{&services, &balancers} {
		if err := r.List(ctx, l, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
	}
	endpoints, err := r.endpoints(ctx, namespace, services.Items)
	if err != nil {
		return nil, err
	}
	var (
		owners  []alloc.Owner
		claims  []spec.Claim
		decided []bounded
	)
	add := func(kind string, o owned, endpoints spec.Endpoints) {
		owner := ownerOf(kind, o.object())
		group, _ := r.groups.of(owner)
		if b, known := bounds[group]; known {
			c := b.ClaimOf(o.object(), endpoints)
			owners, claims = append(owners, owner), append(claims, c)
			decided = append(decided, bounded{raised: c.Raised, group: group, addresses: list(o.shown())})
		}
	}
	for i := range services.Items {
		if svc := &services.Items[i]; r.isOurs(svc) {
			add(kindService, service{svc}, endpoints[svc.Name])
		}
	}
	for i := range balancers.Items {
		add(kindLoadBalancer, balancer{&balancers.Items[i]}, nil)
	}
	result := make(map[alloc.Owner]bounded, len(owners))
	for i, refused := range spec.Admit(bounds, claims) {
		decided[i].refused = refused
		result[owners[i]] = decided[i]
	}
	return result, nil
}

// endpoints counts the endpoints of Services, by name.
func (r quotaReconciler) endpoints(ctx context.Context, namespace string, services []corev1.Service) (map[string]spec.Endpoints, error) {
	all := map[string]spec.Endpoints{}
	for i := range services {
		if r.isOurs(&services[i]) {
			all[services[i].Name] = spec.Endpoints{}
		}
	}
	if len(all) == 0 {
		return all, nil
	}
	var endpointSlices discoveryv1.EndpointSliceList
	if err := r.List(ctx, &endpointSlices, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range endpointSlices.Items {
		es := &endpointSlices.Items[i]
		if e := all[es.Labels[discoveryv1.LabelServiceName]]; e != nil {
			n, err := strconv.Atoi(es.Annotations[usableEndpoints])
			if err != nil {
				return nil, fmt.Errorf("endpointslice %s/%s: %w", namespace, es.Name, err)
			}
			e.Add(spec.SlicePorts(es), n)
		}
	}
	return all, nil
}

// usableEndpoints is an annotation of cached EndpointSlices with the number of their usable
// endpoints, which aren't cached themselves. The API server rejects this key, so no user can write
// one.
const usableEndpoints = "usable endpoints"

// slimSlice reduces an EndpointSlice to the fields that decide reads. Caches may pass a reduced one
// again.
func slimSlice(object any) (any, error) {
	if es, is := object.(*discoveryv1.EndpointSlice); is {
		es.ManagedFields, es.OwnerReferences = nil, nil
		maps.DeleteFunc(es.Labels, func(key, _ string) bool { return key != discoveryv1.LabelServiceName })
		if _, slim := es.Annotations[usableEndpoints]; !slim {
			es.Annotations = map[string]string{usableEndpoints: strconv.Itoa(spec.Usable(es))}
			es.Endpoints = nil
		}
	}
	return object, nil
}
