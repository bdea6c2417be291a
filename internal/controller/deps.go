// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/internal/alloc"
)

// deps is shared by all reconcilers.
type deps struct {
	// Client reads from the cache and writes to the API server; live reads from the API
	// server.
	client.Client
	live client.Reader
	// cache is that from which Client reads, nodes the one of the cluster of nodes: the same
	// unless they are in another cluster.
	cache, nodes cache.Cache
	events       events.EventRecorder
	log          *slog.Logger

	options     Options
	allocations *allocations
	groups      *assignments
	policies    policies
	quotas      quotas
	findings    findings
	written     *writtenStatuses
	// synced is closed after the initial sync; nothing is decided before.
	synced chan struct{}
	// Triggers of the reconcilers.
	services, balancers, pools, members, namespaces trigger
}

func newDeps(options Options) *deps {
	o := &deps{
		options: options, log: options.Log, synced: make(chan struct{}),
		groups:  &assignments{groups: map[alloc.Owner]string{}},
		quotas:  quotas{namespaces: map[string]map[alloc.Owner]bounded{}},
		written: &writtenStatuses{owners: map[alloc.Owner]*writtenStatus{}},
	}
	o.allocations = newAllocations(func(owner alloc.Owner) {
		o.enqueue(owner)
		o.enqueueCounts()
	})
	return o
}

// enqueue triggers the reconciliation of an owner whose addresses or group have changed.
func (o *deps) enqueue(owner alloc.Owner) {
	o.enqueueOwner(owner, 0)
	o.enqueueQuota(owner.Namespace, placementDelay)
}

// enqueueOwner triggers the reconciliation of an owner after a delay.
func (o *deps) enqueueOwner(owner alloc.Owner, delay time.Duration) {
	switch owner.Kind {
	case kindService:
		o.services.enqueueAfter(requestFor(owner), delay)
	case kindLoadBalancer:
		o.balancers.enqueueAfter(requestFor(owner), delay)
	}
}

// usageDelay and placementDelay batch changes, so that a thousand changed Services don't
// cause a thousand writes of the statuses of pools and groups.
const (
	usageDelay     = 250 * time.Millisecond
	placementDelay = 20 * time.Millisecond
)

// enqueueCounts triggers the reconcilers of pools and groups.
func (o *deps) enqueueCounts() {
	o.pools.enqueueAfter(reconcile.Request{}, usageDelay)
	o.members.enqueueAfter(reconcile.Request{}, placementDelay)
}

// staleDelay is the retry delay after a failure because of a stale cache.
const staleDelay = 50 * time.Millisecond

// afterSync runs a reconciler after the initial sync. Conflicts because of a stale cache
// and deleted objects are not errors.
func (o *deps) afterSync(run reconcile.Func) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		select {
		case <-o.synced:
		case <-ctx.Done():
			return reconcile.Result{}, ctx.Err()
		}
		result, err := run(ctx, request)
		switch {
		case apierrors.IsConflict(err):
			return reconcile.Result{RequeueAfter: staleDelay}, nil
		case apierrors.IsNotFound(err):
			return reconcile.Result{}, nil // deleted; the cache will follow
		case err != nil:
			return reconcile.Result{}, err // retried with backoff
		}
		return result, nil
	})
}

// onVersion is a patch that writes the difference to base, on top of the version of base.
func onVersion(base client.Object) client.Patch {
	return client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
}

// patchStatus writes the difference between the statuses of object and base, on top of the
// version of base. It reports whether that created a new version, and writes nothing if
// there is no difference.
func (o *deps) patchStatus(ctx context.Context, object, base client.Object) (written bool, err error) {
	if equality.Semantic.DeepEqual(object, base) {
		return false, nil
	}
	err = o.Status().Patch(ctx, object, onVersion(base))
	return err == nil && object.GetResourceVersion() != base.GetResourceVersion(), err
}

// forget releases the addresses of an owner that is not in the cache, if it doesn't exist
// at the API server either: the cache may be older than allocations. object is an empty
// object of its kind.
func (o *deps) forget(ctx context.Context, kind string, name types.NamespacedName, object client.Object) (reconcile.Result, error) {
	owner := alloc.Owner{Kind: kind, Namespace: name.Namespace, Name: name.Name}
	if !o.allocations.Has(owner) {
		o.written.delete(owner)
		return reconcile.Result{}, nil
	}
	err := o.live.Get(ctx, name, object)
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	case !apierrors.IsNotFound(err):
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, o.release(ctx, owner)
}

// release releases the addresses of an owner that doesn't exist any more, or whose status has no address
// and gets none.
func (o *deps) release(ctx context.Context, owner alloc.Owner) error {
	o.allocations.Release(owner)
	o.groups.delete(owner)
	o.written.delete(owner)
	o.enqueueCounts()
	for _, f := range o.allocations.Former(owner) {
		if err := o.remove(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// trigger is a source of requests for objects that didn't change themselves. It never
// blocks a caller.
type trigger struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	// pending are requests from before Start.
	pending []reconcile.Request
}

// Start implements source.Source.
func (b *trigger) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = queue
	for _, r := range b.pending {
		queue.Add(r)
	}
	b.pending = nil
	return nil
}

// enqueueAfter adds a request after a delay, which merges equal requests.
func (b *trigger) enqueueAfter(r reconcile.Request, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue == nil {
		b.pending = append(b.pending, r)
		return
	}
	b.queue.AddAfter(r, wait)
}

// recordEvents records an Event for each condition whose reason or message changed, so
// that neither repeated reconciliation nor a restart repeats Events. Valid annotations, the
// first group of a Service, that a new one is programmed and healthy, and that a group has enough
// nodes from the start, are not reported.
func (o *deps) recordEvents(object client.Object, before, now []metav1.Condition) {
	for _, c := range now {
		old := meta.FindStatusCondition(before, c.Type)
		expected := c.Reason == reasonServed || c.Reason == reasonProgrammed || c.Reason == reasonBackendsHealthy || c.Reason == reasonEnoughNodes
		if c.Reason == reasonAccepted || expected && old == nil || old != nil && old.Reason == c.Reason && old.Message == c.Message {
			continue
		}
		kind := corev1.EventTypeNormal
		if c.Status != metav1.ConditionTrue {
			kind = corev1.EventTypeWarning
		}
		o.events.Eventf(object, nil, kind, c.Reason, "Reconcile", "%s", c.Message)
		o.log.Info("condition changed", "object", client.ObjectKeyFromObject(object), "condition", c.Type,
			"status", c.Status, "reason", c.Reason, "message", c.Message)
	}
}

// Kinds of address owners.
const (
	kindService      = "Service"
	kindLoadBalancer = "LoadBalancer"
)

func ownerOf(kind string, object client.Object) alloc.Owner {
	return alloc.Owner{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// changedOwners returns the owners with another decision than before, or without one now.
func changedOwners[D any](before, now map[alloc.Owner]D, same func(a, b D) bool) (changed []alloc.Owner) {
	for owner, d := range now {
		if !same(before[owner], d) {
			changed = append(changed, owner)
		}
	}
	for owner := range before {
		if _, still := now[owner]; !still {
			changed = append(changed, owner)
		}
	}
	return changed
}

func requestFor(o alloc.Owner) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: o.Name}}
}
