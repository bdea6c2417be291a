// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"fairlead.io/fairlead/internal/drain"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/store"
)

// signalled returns an agent's context in the place of its command's: it ends on
// SIGINT, or on the second SIGTERM; the first one closes terminate. Signals are
// as usual after release.
func signalled(parent context.Context) (ctx context.Context, terminate <-chan struct{}, release func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, end := context.WithCancel(context.WithoutCancel(parent))
	first := make(chan struct{})
	go func() {
		defer end()
		select {
		case s := <-signals:
			if s != syscall.SIGTERM {
				return
			}
		case <-ctx.Done():
			return
		}
		close(first)
		select {
		case <-signals:
		case <-ctx.Done():
		}
	}()
	return ctx, first, func() {
		signal.Stop(signals)
		end()
	}
}

// change makes the data plane follow what an operator changes.
func (a *agent) change(do func(observe.DrainTarget) error) func(context.Context, observe.DrainTarget) error {
	return func(ctx context.Context, target observe.DrainTarget) error {
		if err := do(target); err != nil {
			return err
		}
		return a.reconciler.Settled(ctx, a.store.Snapshot().Revision)
	}
}

// retire drains the node when terminate is closed, and then stops the agent. The
// order is what clients notice: first nobody is sent here any more, then those
// who still come are waited for, and the agent ends last.
func (a *agent) retire(ctx context.Context, terminate <-chan struct{}, stop func()) {
	select {
	case <-terminate:
	case <-ctx.Done():
		return
	}
	defer stop()
	a.store.Drain(store.Drain{Since: time.Now()}) // not in the book: the next agent serves
	timeout := a.source.Config().Node.DrainTimeout
	if timeout == 0 {
		return
	}
	began := time.Now()
	a.log.Info("waiting until no more packets come", slog.Duration("timeout", timeout))
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := drain.AwaitQuiet(limited, a.plane.Stats)
	took := slog.Duration("took", time.Since(began).Round(time.Millisecond))
	switch {
	case err == nil:
		a.log.Info("node drained", took)
	case errors.Is(err, context.DeadlineExceeded):
		a.log.Warn("packets still come, the time to drain is over", took)
	default:
		a.log.Warn("node not drained", took, slog.Any("error", err))
	}
}
