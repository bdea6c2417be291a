// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/store"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fake"
)

// The pauses between tries double from 100 ms to 30 s, less a random part of up
// to a half.
func TestBackoff(t *testing.T) {
	withReconciler(t, func(t *testing.T, r *testReconciler) {
		var tries []time.Time
		r.dp.Fail = func(op string, _ lb.VIP) error {
			if op == "update" {
				tries = append(tries, time.Now())
				return errors.New("no room")
			}
			return nil
		}
		r.start()
		r.set(services(1))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if len(tries) < 15 {
			t.Fatalf("%d tries in 5 minutes", len(tries))
		}
		full, exact := 100*time.Millisecond, true
		for i, at := range tries[1:] {
			pause := at.Sub(tries[i])
			if pause <= full/2 || pause > full {
				t.Errorf("pause %d is %v, want between %v and %v", i+1, pause, full/2, full)
			}
			exact = exact && pause == full
			full = min(2*full, 30*time.Second)
		}
		if exact {
			t.Error("no pause has jitter")
		}
		status := r.status(0)
		if status.Attempts != len(tries) || !status.NextTry.After(time.Now()) {
			t.Errorf("%d attempts, next try %v; want %d and later than now", status.Attempts, status.NextTry, len(tries))
		}
	})
}

// A service that is desired again is tried at once, and with a short first pause.
func TestChangeResetsBackoff(t *testing.T) {
	withReconciler(t, func(t *testing.T, r *testReconciler) {
		r.start()
		r.fail("update", vip(0), errors.New("no room"))
		r.set(services(1))
		time.Sleep(5 * time.Minute)
		changed := services(1)
		changed[0].Backends = nil
		r.set(changed)
		if status := r.status(0); status.Attempts != 1 || time.Until(status.NextTry) > 100*time.Millisecond {
			t.Errorf("%d attempts, next try in %v; want 1 and at most 100ms", status.Attempts, time.Until(status.NextTry))
		}
		r.fail("update", vip(0), nil)
		changed[0].Affinity = lb.AffinityClient
		snapshot := r.set(changed)
		if status := r.status(0); status.Programmed != snapshot.Revision || status.Attempts != 0 || !status.NextTry.IsZero() {
			t.Errorf("status %+v, want it programmed at revision %d", status, snapshot.Revision)
		}
	})
}

// Settled returns once all services of a revision were tried, also if one of
// them fails, and not before.
func TestSettled(t *testing.T) {
	withReconciler(t, func(t *testing.T, r *testReconciler) {
		const callTime = time.Second
		r.dp.Fail = func(_ string, failing lb.VIP) error {
			time.Sleep(callTime)
			if failing == vip(1) {
				return errors.New("no room")
			}
			return nil
		}
		snapshot, err := r.store.Set(services(3))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Settled(ctx, snapshot.Revision); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("settled before it ran: error %v", err)
		}
		begin := time.Now()
		r.start()
		if err := r.Settled(t.Context(), snapshot.Revision); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 3*callTime {
			t.Errorf("settled after %v, want at least three calls of %v", took, callTime)
		}
		for i, status := range r.store.Snapshot().Statuses() {
			if failed := status.Error != ""; failed != (i == 1) || status.Took != callTime {
				t.Errorf("service %d: error %q, took %v", i, status.Error, status.Took)
			}
		}
		if err := r.Settled(t.Context(), snapshot.Revision); err != nil {
			t.Errorf("settled once, and then not: %v", err)
		}
	})
}

// The end of the context interrupts a pass, and is not a failure of a service.
func TestShutdown(t *testing.T) {
	withReconciler(t, func(t *testing.T, r *testReconciler) {
		ctx, cancel := context.WithCancel(t.Context())
		r.dp.Fail = func(_ string, at lb.VIP) error {
			if at == vip(1) {
				cancel()
				return ctx.Err()
			}
			return nil
		}
		if _, err := r.store.Set(services(4)); err != nil {
			t.Fatal(err)
		}
		r.Run(ctx)
		want := []string{"update tcp 10.1.1.0:80", "update tcp 10.1.1.1:80: failed"}
		if calls := r.dp.Calls(); !slices.Equal(calls, want) {
			t.Errorf("calls %q, want %q", calls, want)
		}
		for _, status := range r.store.Snapshot().Statuses() {
			if status.Error != "" {
				t.Errorf("the end is a failure: %+v", status)
			}
		}
	})
}

// BenchmarkReload is the reconciler's own share of a reload: all of 100
// services change.
func BenchmarkReload(b *testing.B) {
	dp, desired := dataplanetest.NewFake(), store.New()
	defer func() { _ = dp.Close() }()
	r := reconcile.New(dp, desired, slog.New(slog.DiscardHandler))
	defer fake.Run(b, fake.Part(r.Run))()
	all := services(100)
	for b.Loop() {
		for i := range all {
			all[i].MinHealthy++
		}
		snapshot, err := desired.Set(all)
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Settled(b.Context(), snapshot.Revision); err != nil {
			b.Fatal(err)
		}
		dp.Calls()
	}
}

// While more services are desired than are known, nothing of an earlier process is removed.
func TestIncompleteIsNotPruned(t *testing.T) {
	withReconciler(t, func(t *testing.T, r *testReconciler) {
		left := fake.Service("left", fake.VIP("10.9.0.1"), "10.2.0.1")
		if _, err := r.dp.Update(t.Context(), &left); err != nil {
			t.Fatal(err)
		}
		r.store.SetIncomplete(true)
		if revision := r.store.Snapshot().Revision; revision != 0 {
			t.Errorf("revision %d before any service is known", revision)
		}
		r.start()
		kept := func() bool { return strings.Contains(r.dp.Dump(), "10.9.0.1") }
		r.set(services(2))
		r.set(services(3))
		time.Sleep(time.Minute)
		synctest.Wait()
		if !kept() {
			t.Error("removed while services are unknown")
		}
		r.store.SetIncomplete(false)
		synctest.Wait()
		if kept() {
			t.Error("not removed when all services are known")
		}
	})
}
