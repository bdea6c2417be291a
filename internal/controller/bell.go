// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// bell is a source of requests for objects that didn't change themselves. It never
// blocks who rings it.
type bell struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	// early were rung for before there was a queue.
	early []reconcile.Request
}

// Start has requests put into a reconciler's queue.
func (b *bell) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = queue
	for _, r := range b.early {
		queue.Add(r)
	}
	b.early = nil
	return nil
}

// ring asks for one run. If it is asked for before there is a queue it is
// remembered.
func (b *bell) ring(r reconcile.Request) { b.ringIn(r, 0) }

// ringIn asks for one run after a while: several that fall into it are one.
func (b *bell) ringIn(r reconcile.Request, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue == nil {
		b.early = append(b.early, r)
		return
	}
	b.queue.AddAfter(r, wait)
}
