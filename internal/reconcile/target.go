// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/store"
)

// target is one service on its way to what is desired.
type target struct {
	// entry is what is desired; without a Service the VIP is to be deleted.
	entry store.Entry
	// desired is the store's newest revision that has the service.
	desired uint64
	// pending says that there is something to do, at status.NextTry.
	pending bool
	status  Status
}

// want sets what is desired. Where that is news it is tried at once.
func (t *target) want(entry store.Entry) {
	if entry.Service == t.entry.Service && t.status.Deleting == (entry.Service == nil) {
		return
	}
	t.entry = entry
	t.status.Desired = entry.Revision
	t.status.Deleting = entry.Service == nil
	t.status.Attempts = 0
	if entry.Service != nil {
		t.status.Name = entry.Service.Name
	}
	t.due()
}

// due makes the target the next pass' work.
func (t *target) due() {
	t.pending = true
	t.status.NextTry = time.Time{}
}

// dueTargets returns what a pass has to do: deletions, then updates, each by
// VIP.
func (r *Reconciler) dueTargets(now time.Time) []*target {
	var due []*target
	for _, t := range r.targets {
		if t.pending && !t.status.NextTry.After(now) {
			due = append(due, t)
		}
	}
	slices.SortFunc(due, func(a, b *target) int {
		if a.status.Deleting != b.status.Deleting {
			if a.status.Deleting {
				return -1
			}
			return 1
		}
		return a.status.VIP.Compare(b.status.VIP)
	})
	return due
}

// update tries to program the target once.
func (r *Reconciler) update(ctx context.Context, t *target) {
	var programmed dataplane.Programmed
	took, err := r.call(&r.work.Update, func() (err error) {
		programmed, err = r.dp.Update(ctx, t.entry.Service)
		return err
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if r.failed(t, err, took) {
			r.logger(t).Warn("update failed", slog.Any("error", err))
		}
		return
	}
	old := t.status
	r.mu.Lock()
	t.pending = false
	t.status.succeeded(programmed, took)
	if old.Programmed != t.status.Programmed {
		r.work.Delay.add(time.Since(t.entry.Changed))
	}
	news := old.Error != "" || old.Programmed != t.status.Programmed || !sameState(old.State, programmed)
	if news {
		r.note()
	}
	r.mu.Unlock()
	if news {
		r.logger(t).Info("service programmed", slog.Uint64("revision", t.status.Programmed),
			slog.Int("inUse", programmed.InUse()), slog.Int("backends", len(programmed.Backends)), slog.Duration("took", took))
	}
}

// delete tries to delete the target once; with success it is forgotten.
func (r *Reconciler) delete(ctx context.Context, t *target) {
	took, err := r.call(&r.work.Delete, func() error { return r.dp.Delete(ctx, t.status.VIP) })
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if r.failed(t, err, took) {
			r.logger(t).Warn("delete failed", slog.Any("error", err))
		}
		return
	}
	r.mu.Lock()
	delete(r.targets, t.status.VIP)
	r.note()
	r.mu.Unlock()
	r.logger(t).Info("service deleted", slog.Duration("took", took))
}

// failed plans the next try. What was last programmed remains in the status, as
// it does in the data plane. It says whether the reason is news, worth a log line.
func (r *Reconciler) failed(t *target, err error, took time.Duration) (news bool) {
	known := t.status.Error
	r.mu.Lock()
	t.status.failed(err, took)
	news = known != t.status.Error
	if news {
		r.note()
	}
	r.mu.Unlock()
	return news
}

// logger returns the logger of a target's lines.
func (r *Reconciler) logger(t *target) *slog.Logger {
	return r.log.With(slog.String("service", t.status.Name), slog.String("vip", t.status.VIP.String()))
}

func sameState(a, b dataplane.Programmed) bool {
	return a.RingSize == b.RingSize && slices.Equal(a.Backends, b.Backends)
}
