// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// target is one service on its way to its desired state.
type target struct {
	// entry is the desired state; without a Service the VIP is to be deleted.
	entry store.Entry
	// desired is the store's newest revision that has the service.
	desired uint64
	// pending says that there is something to do, at status.NextTry.
	pending bool
	status  store.Status
	// programmed is the service as the data plane has it; nil if that is unknown, or if absent is
	// true.
	programmed *lb.Service
	absent     bool
}

// want sets the desired state. A change is tried at once.
func (t *target) want(entry store.Entry) {
	if entry.Service == t.entry.Service && t.status.Deleting == (entry.Service == nil) {
		return
	}
	t.entry = entry
	t.status.Deleting = entry.Service == nil
	t.status.Attempts = 0
	if entry.Service != nil {
		t.status.Name = entry.Service.Name
	}
	t.due()
}

// due makes the target a part of the next pass.
func (t *target) due() {
	t.pending = true
	t.status.NextTry = time.Time{}
}

// dueTargets returns the targets of a pass: deletions by VIP, then updates, oldest
// objects first, so that older objects get free capacity first.
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
		if !a.status.Deleting {
			return lb.ByAge(a.entry.Service, b.entry.Service)
		}
		return a.status.VIP.Compare(b.status.VIP)
	})
	return due
}

// update tries to program the target once.
func (r *Reconciler) update(ctx context.Context, t *target) {
	var programmed dataplane.Programmed
	took, err := r.call(opUpdate, func() (err error) {
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
		r.close(ctx, t)
		return
	}
	t.programmed, t.absent = t.entry.Service, false
	old, s := t.status, &t.status
	t.pending = false
	s.Programmed, s.State, s.Took = t.entry.Revision, programmed, took
	s.Error, s.Attempts, s.NextTry = "", 0, time.Time{}
	if old.Programmed != s.Programmed {
		r.metrics.delay.Observe(time.Since(t.entry.Changed).Seconds())
	}
	if old.Error == "" && old.Programmed == s.Programmed && sameState(old.State, programmed) {
		return
	}
	r.unpublished[t] = true
	r.logger(t).Info("service programmed", slog.Uint64("revision", s.Programmed),
		slog.Int("inUse", programmed.InUse()), slog.Int("backends", len(programmed.Backends)), slog.Duration("took", took))
}

// close deletes a service that can't be updated if its present version lets clients in that the
// desired one denies, or may do so. The update is retried: it may have room then.
func (r *Reconciler) close(ctx context.Context, t *target) {
	desired := t.entry.Service
	if t.absent || desired.Sources.Verdicts(desired.Address) == nil ||
		t.programmed != nil && t.programmed.Sources.Within(desired.Sources, desired.Address) {
		return
	}
	if _, err := r.call(opDelete, func() error { return r.dp.Delete(ctx, desired.VIP) }); err != nil {
		r.logger(t).Warn("service with outdated sources not taken out, retrying", slog.Any("error", err))
		return
	}
	t.programmed, t.absent = nil, true
	t.status.Programmed, t.status.State = 0, dataplane.Programmed{}
	r.logger(t).Warn("service taken out: its sources have changed and can't be updated")
}

// delete tries to delete the target once, and forgets it if it succeeds.
func (r *Reconciler) delete(ctx context.Context, t *target) {
	took, err := r.call(opDelete, func() error { return r.dp.Delete(ctx, t.status.VIP) })
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if r.failed(t, err, took) {
			r.logger(t).Warn("delete failed", slog.Any("error", err))
		}
		return
	}
	delete(r.targets, t.status.VIP)
	delete(r.unpublished, t)
	r.deleted = append(r.deleted, t.status.VIP)
	r.logger(t).Info("service deleted", slog.Duration("took", took))
}

// failed plans the next attempt. The status keeps the service last programmed, as
// the data plane does. It reports whether the reason differs from the last one.
func (r *Reconciler) failed(t *target, err error, took time.Duration) (changed bool) {
	s := &t.status
	known := s.Error
	s.Error, s.Took = err.Error(), took
	s.Attempts++
	s.NextTry = time.Now().Add(retry.Delay(s.Attempts))
	r.unpublished[t] = true
	return known != s.Error
}

// logger returns the logger of a target's lines.
func (r *Reconciler) logger(t *target) *slog.Logger {
	return r.log.With(slog.String("service", t.status.Name), slog.String("vip", t.status.VIP.String()))
}

func sameState(a, b dataplane.Programmed) bool {
	return a.DataPlane == b.DataPlane && a.Reason == b.Reason && a.RingSize == b.RingSize && slices.Equal(a.Backends, b.Backends)
}
