// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/store"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// world is a reconciler with what it stands between, in a synctest bubble.
type world struct {
	t          *testing.T
	store      *store.Store
	dp         *dataplanetest.Fake
	reconciler *reconcile.Reconciler
	log        *logBuffer

	mu sync.Mutex
	// faults are the calls that fail.
	faults map[fault]error
}

type fault struct {
	op  string
	vip lb.VIP
}

// logBuffer holds the log's lines until they are taken.
type logBuffer struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines.Write(line)
}

func (b *logBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.lines.Reset()
	return b.lines.String()
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: store.New(), dp: dataplanetest.NewFake(), log: &logBuffer{}, faults: map[fault]error{}}
	w.dp.Fail = func(op string, vip lb.VIP) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.faults[fault{op, vip}]
	}
	t.Cleanup(func() {
		if err := w.dp.Close(); err != nil {
			t.Error(err)
		}
	})
	untimed := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "took" {
			return slog.Attr{}
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{ReplaceAttr: untimed}))
	w.reconciler = reconcile.New(w.dp, w.store, logger)
	return w
}

// fail makes calls fail with an error, or no longer if it is nil.
func (w *world) fail(op string, vip lb.VIP, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[fault{op, vip}] = err
}

// start runs the reconciler until the test ends, and waits for it then.
func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.reconciler.Run(ctx)
	}()
	w.t.Cleanup(func() {
		cancel()
		<-ended
	})
	synctest.Wait()
}

// set desires services and waits until the reconciler sleeps.
func (w *world) set(services []lb.Service) store.Snapshot {
	w.t.Helper()
	snapshot, err := w.store.Set(services)
	if err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	return snapshot
}
