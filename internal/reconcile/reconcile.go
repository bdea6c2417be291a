// SPDX-License-Identifier: Apache-2.0

// Package reconcile makes a data plane balance what the store desires.
//
// It stands between the store and a dataplane.DataPlane. Each service is
// brought up to date by itself: one that fails is tried again with growing
// pauses and keeps no other from being served. What came of each service is its
// Status, which status commands show and routes follow.
package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// Reconciler drives one data plane from one store. Run does the work; the other
// methods may be called from any goroutine, at any time.
type Reconciler struct {
	dp    dataplane.DataPlane
	store *store.Store
	log   *slog.Logger

	// adopted is the revision that the targets aim at. It and prune are touched
	// by Run alone.
	adopted uint64
	prune   pruning

	mu sync.Mutex
	// targets has each service that is desired or not yet deleted. Run alone
	// changes the map and its targets, holding mu; so Run needs no mu to read.
	targets map[lb.VIP]*target
	// settled is the newest revision of which every service has been tried, and
	// moved is closed when it grows.
	settled uint64
	moved   chan struct{}
	// changed is closed when a status changes.
	changed chan struct{}
	// work has been done; calling is since when the data plane does more.
	work    Work
	calling time.Time
}

// New returns a reconciler that is started with Run.
func New(dp dataplane.DataPlane, desired *store.Store, log *slog.Logger) *Reconciler {
	return &Reconciler{
		dp:      dp,
		store:   desired,
		log:     log,
		targets: map[lb.VIP]*target{},
		moved:   make(chan struct{}),
		changed: make(chan struct{}),
	}
}

// Run keeps the data plane at what the store desires until ctx ends. It is
// called once. What is programmed stays programmed when it returns.
func (r *Reconciler) Run(ctx context.Context) {
	stale := r.dp.Stale()
	for {
		snapshot, changed := r.store.Watch()
		r.adopt(snapshot)
		r.pass(ctx, snapshot)
		if ctx.Err() != nil {
			return
		}
		r.settle(snapshot.Revision)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.retryTimer():
		case vip := <-stale:
			r.touch(vip, stale)
		}
	}
}

// adopt makes snapshot what the targets aim at.
func (r *Reconciler) adopt(snapshot store.Snapshot) {
	if snapshot.Revision == r.adopted {
		return
	}
	r.adopted = snapshot.Revision
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, entry := range snapshot.Services {
		vip := entry.Service.VIP
		t := r.targets[vip]
		if t == nil {
			t = &target{status: Status{VIP: vip}}
			r.targets[vip] = t
		}
		t.desired = snapshot.Revision
		t.want(entry)
	}
	for _, t := range r.targets {
		if t.desired != snapshot.Revision {
			t.want(store.Entry{})
		}
	}
	r.note()
}

// touch makes the service of vip due, and those that wait behind it: a next hop
// that changes can outdate thousands at once.
func (r *Reconciler) touch(vip lb.VIP, more <-chan lb.VIP) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for taken := 1; ; taken++ {
		if t := r.targets[vip]; t != nil {
			t.due()
		}
		if taken >= len(r.targets) {
			return
		}
		select {
		case vip = <-more:
		default:
			return
		}
	}
}

// pass tries whatever is due, deletions first as they make room. Once all has
// been tried, it prunes what an earlier process left in the data plane. Nothing
// is pruned before the store's first revision: until then nobody knows what the
// earlier process' services are worth.
func (r *Reconciler) pass(ctx context.Context, snapshot store.Snapshot) {
	for _, t := range r.dueTargets(time.Now()) {
		if ctx.Err() != nil {
			return
		}
		if t.entry.Service == nil {
			r.delete(ctx, t)
		} else {
			r.update(ctx, t)
		}
	}
	if snapshot.Revision > 0 && r.prune.isDue(time.Now()) && ctx.Err() == nil {
		r.pruneOnce(ctx, snapshot)
	}
}

// retryTimer fires when the next retry is due, never if there is none.
func (r *Reconciler) retryTimer() <-chan time.Time {
	next := r.prune.nextTry()
	for _, t := range r.targets {
		if at := t.status.NextTry; t.pending && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(time.Until(next))
}

// settle announces that every service of a revision has been tried.
func (r *Reconciler) settle(revision uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if revision > r.settled {
		r.settled = revision
		close(r.moved)
		r.moved = make(chan struct{})
	}
}

// Settled waits until every change up to a revision of the store has been
// tried: then each service is programmed, or its status says why not. It
// returns the context's error if that ends first.
func (r *Reconciler) Settled(ctx context.Context, revision uint64) error {
	for {
		r.mu.Lock()
		settled, moved := r.settled, r.moved
		r.mu.Unlock()
		if settled >= revision {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
