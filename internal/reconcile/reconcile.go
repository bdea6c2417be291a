// SPDX-License-Identifier: Apache-2.0

// Package reconcile programs the store's desired services into a data plane. The
// agent runs it.
//
// Each service is brought up to date by itself: one that fails is tried again with
// growing pauses, and doesn't keep others from being served. Each service's state
// in the data plane is written to the store as its status.
package reconcile

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/internal/wait"
)

// retry is short at first because most failures are races with a network that is
// being set up; the longest pause bounds how long a healed service waits.
var retry = wait.Backoff{First: 100 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.5}

// publishInterval is how often statuses are written to the store during a pass over
// many services; at its end they always are.
const publishInterval = 100 * time.Millisecond

// Reconciler drives one data plane from one store. Run does the work; the other
// methods may be called from any goroutine, at any time.
type Reconciler struct {
	dp      dataplane.DataPlane
	store   *store.Store
	log     *slog.Logger
	metrics *metrics
	// settled is the newest revision of which every service has been tried.
	settled wait.Value[uint64]
	// calling is when the current call of the data plane began; nil without one.
	calling atomic.Pointer[time.Time]

	// The rest belongs to Run.

	// adopted is the revision that the targets aim at.
	adopted uint64
	// targets has each service that is desired or not yet deleted.
	targets map[lb.VIP]*target
	prune   pruning
	// unpublished are targets whose statuses the store doesn't have yet, deleted the
	// VIPs of which it still has one.
	unpublished map[*target]bool
	deleted     []lb.VIP
	published   time.Time
}

// pruning is the one removal of services that an earlier process left in the data
// plane.
type pruning struct {
	done     bool
	failures int
	reason   string
	next     time.Time
}

// New returns a reconciler that is started with Run.
func New(dp dataplane.DataPlane, desired *store.Store, log *slog.Logger) *Reconciler {
	return &Reconciler{
		dp: dp, store: desired, log: log, metrics: newMetrics(),
		targets: map[lb.VIP]*target{}, unpublished: map[*target]bool{},
	}
}

// Run keeps the data plane at the store's desired services until ctx ends. It is
// called once. Programmed services stay programmed when it returns.
func (r *Reconciler) Run(ctx context.Context) {
	stale := r.dp.Stale()
	for {
		snapshot, changed := r.store.Watch()
		r.adopt(snapshot)
		r.pass(ctx, snapshot)
		r.publish()
		if ctx.Err() != nil {
			return
		}
		if snapshot.Revision > r.settled.Get() {
			r.settled.Set(snapshot.Revision)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.retryTimer():
		case vip := <-stale:
			r.refresh(vip, stale)
		}
	}
}

// adopt sets the targets' desired services from snapshot.
func (r *Reconciler) adopt(snapshot store.Snapshot) {
	if snapshot.Revision == r.adopted {
		return
	}
	r.adopted = snapshot.Revision
	for _, entry := range snapshot.Services {
		vip := entry.Service.VIP
		t := r.targets[vip]
		if t == nil {
			t = &target{status: store.Status{VIP: vip}}
			r.targets[vip] = t
		}
		t.desired = snapshot.Revision
		t.want(entry)
	}
	for _, t := range r.targets {
		if t.desired != snapshot.Revision {
			if !t.status.Deleting {
				r.unpublished[t] = true
			}
			t.want(store.Entry{})
		}
	}
	r.publish()
}

// refresh makes the service of vip due, and those whose VIPs are queued as well: a
// next hop that changes can outdate thousands at once.
func (r *Reconciler) refresh(vip lb.VIP, more <-chan lb.VIP) {
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

// pass tries all due targets, deletions first as they make room. Once all have been
// tried, it prunes services that an earlier process left in the data plane. Nothing
// is pruned before the store's first complete revision: until then it isn't known which of
// the earlier process's services are still desired.
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
		if time.Since(r.published) >= publishInterval {
			r.publish()
		}
	}
	due := !r.prune.done && !r.prune.next.After(time.Now())
	if snapshot.Revision > 0 && !snapshot.Incomplete && due && ctx.Err() == nil {
		r.pruneOnce(ctx, snapshot)
	}
}

// publish writes the statuses to the store that have changed since the last time.
func (r *Reconciler) publish() {
	r.published = time.Now()
	if len(r.unpublished) == 0 && len(r.deleted) == 0 {
		return
	}
	changed := make([]store.Status, 0, len(r.unpublished))
	for t := range r.unpublished {
		changed = append(changed, t.status)
	}
	r.store.SetStatus(changed, r.deleted)
	clear(r.unpublished)
	r.deleted = nil
}

// retryTimer fires when the next retry is due, never if there is none.
func (r *Reconciler) retryTimer() <-chan time.Time {
	var next time.Time
	if !r.prune.done {
		next = r.prune.next
	}
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

// Settled waits until every change up to a revision of the store has been
// tried: then each service is programmed, or its status says why not. It
// returns the cause of ctx's end if that comes first.
func (r *Reconciler) Settled(ctx context.Context, revision uint64) error {
	_, err := r.settled.Await(ctx, func(settled uint64) bool { return settled >= revision })
	return err
}

// pruneOnce removes all services that the snapshot doesn't desire. Those that
// it desires are kept even if they failed: an earlier process may have
// programmed them, and then they still serve.
func (r *Reconciler) pruneOnce(ctx context.Context, snapshot store.Snapshot) {
	keep := make([]lb.VIP, len(snapshot.Services))
	for i, entry := range snapshot.Services {
		keep[i] = entry.Service.VIP
	}
	_, err := r.call(opPrune, func() error { return r.dp.Prune(ctx, keep) })
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		r.prune = pruning{done: true}
		r.log.Info("data plane pruned", slog.Int("kept", len(keep)))
		return
	}
	p := &r.prune
	p.failures++
	p.next = time.Now().Add(retry.Delay(p.failures))
	if reason := err.Error(); reason != p.reason {
		p.reason = reason
		r.log.Warn("prune failed", slog.Any("error", err))
	}
}
