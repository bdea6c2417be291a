// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/controller/ledger"
)

// office is what reconcilers share.
type office struct {
	// Client reads from the cache and writes to the API server; live reads there too.
	client.Client
	live   client.Reader
	events events.EventRecorder
	log    *slog.Logger

	options Options
	tenure  *tenure
	ledger  *ledger.Ledger
	groups  *assignments
	// began is closed when what earlier processes did is taken over: before that
	// nothing is decided.
	began chan struct{}
	// Bells of the reconcilers.
	services, balancers, pools, members bell
}

func newOffice(options Options) *office {
	o := &office{options: options, log: options.Log, groups: newAssignments(), began: make(chan struct{})}
	o.ledger = ledger.New(o.wake)
	return o
}

// wake has an owner of addresses looked at.
func (o *office) wake(owner alloc.Owner) {
	switch owner.Kind {
	case kindService:
		o.services.ring(requestFor(owner))
	case kindLoadBalancer:
		o.balancers.ring(requestFor(owner))
	}
}

// usageDelay and placementDelay gather changes, so that a thousand Services don't
// make a thousand statuses of pools and groups.
const (
	usageDelay     = 250 * time.Millisecond
	placementDelay = 20 * time.Millisecond
)

// changed tells those who count addresses, and those who place them.
func (o *office) changed() {
	o.pools.ringIn(reconcile.Request{}, usageDelay)
	o.members.ringIn(reconcile.Request{}, placementDelay)
}

// staleDelay is after what time something is tried again that failed because the
// cache didn't show the newest version yet.
const staleDelay = 50 * time.Millisecond

// begun runs a reconciler once what was before is taken over. That the cache was
// behind, or that the object is gone by now, is no error.
func (o *office) begun(run reconcile.Func) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		select {
		case <-o.began:
		case <-ctx.Done():
			return reconcile.Result{}, ctx.Err()
		}
		result, err := run(ctx, request)
		switch {
		case apierrors.IsConflict(err):
			return reconcile.Result{RequeueAfter: staleDelay}, nil
		case apierrors.IsNotFound(err):
			return reconcile.Result{}, nil // a deletion, of which the cache will tell
		}
		return result, err
	})
}

// patch writes what is new in an object, if anything is, on top of the version that
// base is. It reports whether that made a new version.
func (o *office) patch(ctx context.Context, object, base client.Object) (written bool, err error) {
	err = o.Patch(ctx, object, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	return err == nil && object.GetResourceVersion() != base.GetResourceVersion(), err
}

// patchStatus is patch for the object's status.
func (o *office) patchStatus(ctx context.Context, object, base client.Object) (written bool, err error) {
	err = o.Status().Patch(ctx, object, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	return err == nil && object.GetResourceVersion() != base.GetResourceVersion(), err
}

// forget gives back what an owner had that is in no cache, if it is really gone:
// asked of the API server, as the cache may be older than what the ledger knows.
// object is one of its kind.
func (o *office) forget(ctx context.Context, owner alloc.Owner, object client.Object) (reconcile.Result, error) {
	if !o.ledger.Knows(owner) {
		return reconcile.Result{}, nil
	}
	err := o.live.Get(ctx, requestFor(owner).NamespacedName, object)
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	case !apierrors.IsNotFound(err):
		return reconcile.Result{}, err
	}
	o.release(owner)
	return reconcile.Result{}, nil
}

// release gives back what an owner had whose status is known not to have it.
func (o *office) release(owner alloc.Owner) {
	o.ledger.Gone(owner)
	o.groups.forget(owner)
	o.changed()
}
