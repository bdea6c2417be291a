// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// What failed is tried again after retryFirst, then after twice as long each time, but at
// least every retryLast: an API server that is back doesn't wait for us. (The
// library's own limit is a quarter of an hour.)
const (
	retryFirst = 5 * time.Millisecond
	retryLast  = 10 * time.Second
)

// newReconciler has run called for each object of a kind that changes, and for whom
// a bell is rung.
func newReconciler(
	mgr manager.Manager, name string, run reconcile.Func, o *office, rung *bell, options controller.Options, kind client.Object,
) error {
	return watch(mgr, name, run, o, rung, options, &handler.EnqueueRequestForObject{}, kind)
}

// newSingle has run called, in one call for all, when any object of some kinds
// changes, or a bell is rung.
func newSingle(mgr manager.Manager, name string, run reconcile.Func, o *office, rung *bell, kinds ...client.Object) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	return watch(mgr, name, run, o, rung, controller.Options{}, all, kinds...)
}

func watch(
	mgr manager.Manager, name string, run reconcile.Func, o *office, rung *bell,
	options controller.Options, requests handler.EventHandler, kinds ...client.Object,
) error {
	options.Reconciler = o.begun(run)
	options.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLast)
	c, err := controller.New(name, mgr, options)
	if err != nil {
		return fmt.Errorf("reconciler %s: %w", name, err)
	}
	for _, kind := range kinds {
		if err := c.Watch(source.Kind(mgr.GetCache(), kind, requests)); err != nil {
			return fmt.Errorf("reconciler %s: %w", name, err)
		}
	}
	return c.Watch(rung)
}
