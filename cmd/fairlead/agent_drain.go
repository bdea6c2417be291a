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

// drain takes a target out of service. A service gets no new flows from then on,
// so that its traffic is moved away first.
func (a *agent) drain(ctx context.Context, target observe.DrainTarget) error {
	if a.announcer != nil && wholeService(target) {
		done, err := a.announcer.Move(ctx, target.Service)
		if err != nil {
			return err
		}
		defer done()
	}
	return a.change(ctx, target, a.book.Drain)
}

// undrain takes a target into service again, also one that is only about to leave
// it.
func (a *agent) undrain(ctx context.Context, target observe.DrainTarget) error {
	if a.announcer != nil && wholeService(target) {
		a.announcer.Stay(target.Service)
	}
	return a.change(ctx, target, a.book.Undrain)
}

func wholeService(target observe.DrainTarget) bool {
	return target.Service != "" && !target.Backend.IsValid()
}

// change makes the data plane and the routes follow what an operator changes.
func (a *agent) change(ctx context.Context, target observe.DrainTarget, do func(observe.DrainTarget) error) error {
	if err := do(target); err != nil {
		return err
	}
	if err := a.reconciler.Settled(ctx, a.store.Snapshot().Revision); err != nil || a.announcer == nil {
		return err
	}
	return a.announcer.Sync(ctx)
}

// retire drains the node when terminate is closed, and then stops the agent. The
// order is what clients notice: first nobody is sent here any more, then those
// who still come are waited for, and the agent ends last. If the node doesn't go
// with its agent nothing is taken away: the next one takes over.
func (a *agent) retire(ctx context.Context, terminate <-chan struct{}, stop func()) {
	select {
	case <-terminate:
	case <-ctx.Done():
		return
	}
	bye := a.source.farewell(ctx)
	a.forever = bye.forever
	if bye.reason == "" {
		a.log.Info("the node goes on, its next agent takes over")
		stop()
		return
	}
	a.log.Info("node leaves", slog.String("reason", bye.reason))
	a.store.Drain(store.Drain{Since: time.Now()}) // not in the book: the next agent serves
	a.withdrawRoutes(ctx)
	a.awaitQuiet(ctx)
	a.closeSpeaker(ctx)
	stop()
}

// awaitQuiet waits until no more packets come, as long as the configuration says.
func (a *agent) awaitQuiet(ctx context.Context) {
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
