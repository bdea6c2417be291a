// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"log/slog"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// pruning is the one removal of what an earlier process left in the data plane.
type pruning struct {
	done     bool
	failures int
	reason   string
	next     time.Time
}

func (p *pruning) isDue(now time.Time) bool { return !p.done && !p.next.After(now) }

// nextTry is the time of the next retry, zero if there is none.
func (p *pruning) nextTry() time.Time {
	if p.done {
		return time.Time{}
	}
	return p.next
}

// pruneOnce removes all services that the snapshot doesn't desire. Those that
// it desires are kept even if they failed: an earlier process may have
// programmed them, and then they still serve.
func (r *Reconciler) pruneOnce(ctx context.Context, snapshot store.Snapshot) {
	keep := make([]lb.VIP, len(snapshot.Services))
	for i, entry := range snapshot.Services {
		keep[i] = entry.Service.VIP
	}
	_, err := r.call(&r.work.Prune, func() error { return r.dp.Prune(ctx, keep) })
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
	p.next = time.Now().Add(pause(p.failures))
	if reason := err.Error(); reason != p.reason {
		p.reason = reason
		r.log.Warn("prune failed", slog.Any("error", err))
	}
}
