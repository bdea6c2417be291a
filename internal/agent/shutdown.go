// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/store"
)

// shutDown drains the node when terminate is closed, and then stops the agent.
// The routes are withdrawn first, then the traffic that still arrives is waited
// for, and the agent ends last. If another agent takes over, nothing is withdrawn.
func (a *Agent) shutDown(ctx context.Context, terminate <-chan struct{}, stop func()) {
	select {
	case <-terminate:
	case <-ctx.Done():
		return
	}
	plan := a.Source.Shutdown(ctx)
	a.permanent = plan.Permanent
	if plan.Reason == "" {
		a.Log.Info("agent stopping, node stays in service")
		stop()
		return
	}
	a.Log.Info("agent stopping, node leaves", slog.String("reason", plan.Reason))
	a.store.Drain(store.Drain{Since: time.Now()}) // not saved: the next agent serves
	if a.announcer != nil {
		if err := a.announcer.Stop(ctx); err != nil {
			a.Log.Warn("routes not withdrawn", slog.Any("error", err))
		}
	}
	a.awaitDrained(ctx)
	a.closeSessions(ctx)
	stop()
}

// awaitDrained waits until no packet is forwarded any more, at most for the
// configured drain timeout.
func (a *Agent) awaitDrained(ctx context.Context) {
	timeout := a.Source.Config().Node.DrainTimeout
	if timeout == 0 {
		return
	}
	began := time.Now()
	a.Log.Info("waiting for traffic to cease", slog.Duration("timeout", timeout))
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := awaitQuiet(limited, a.Plane.Stats)
	took := slog.Duration("took", time.Since(began).Round(time.Millisecond))
	switch {
	case err == nil:
		a.Log.Info("node drained", took)
	case errors.Is(err, context.DeadlineExceeded):
		a.Log.Warn("drain timeout expired with traffic still arriving", took)
	default:
		a.Log.Warn("node not drained", took, slog.Any("error", err))
	}
}

// sessionCloseTimeout bounds the time to close the BGP sessions. A hook may take as long as
// hookCalls of its calls.
const (
	sessionCloseTimeout = 2 * time.Second
	hookCalls           = 2
)

// closeSessions closes the BGP sessions, or waits for the end of the hook's calls, unless ctx
// has ended.
func (a *Agent) closeSessions(ctx context.Context) {
	if a.Speaker == nil || ctx.Err() != nil {
		return
	}
	timeout := sessionCloseTimeout
	if a.Hook != nil {
		timeout = hookCalls * a.Hook.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch err := a.Speaker.Close(ctx); {
	case err == nil:
	case a.Hook != nil:
		a.Log.Warn("routes not removed", slog.Any("error", err))
	default:
		a.Log.Warn("bgp sessions not closed", slog.Any("error", err))
	}
}

const (
	// quietTime is how long no packet has to be forwarded for a node to count as
	// drained, quietSample how often the counters are read.
	quietTime   = time.Second
	quietSample = 200 * time.Millisecond
)

// awaitQuiet waits until no packet has been forwarded to any backend for a
// second, or ctx ends: then it returns ctx's error. Without services it doesn't
// wait.
func awaitQuiet(ctx context.Context, read func(context.Context) (dataplane.Stats, error)) error {
	tick := time.NewTicker(quietSample)
	defer tick.Stop()
	last, since := uint64(0), time.Now()
	for {
		stats, err := read(ctx)
		if err != nil {
			return err
		}
		if len(stats.Services) == 0 {
			return nil
		}
		packets := uint64(0)
		for _, s := range stats.Services {
			packets += s.Packets
		}
		if packets != last {
			last, since = packets, time.Now()
		}
		if time.Since(since) >= quietTime {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
