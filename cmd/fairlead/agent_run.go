// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/metric"
	"fairlead.io/fairlead/internal/observe/web"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/source/file"
	"fairlead.io/fairlead/internal/store"
)

// plane is a data plane with what only its kind knows.
type plane struct {
	dataplane.DataPlane
	kind string
	// attach puts it to work once the first services are programmed.
	attach      func() error
	attachments func() []observe.Attachment
	trace       func(context.Context, dataplane.Packet) (dataplane.Trace, error)
	flows       func(context.Context, dataplane.FlowQuery) (dataplane.Flows, error)
}

// agent is the story of DESIGN.md §1 on one node: source, store, reconcile, data
// plane, observe.
type agent struct {
	started    time.Time
	log        *slog.Logger
	source     *file.Source
	plane      plane
	store      *store.Store
	reconciler *reconcile.Reconciler
	happened   observe.Events
	observer   *observe.Observer
	server     *observe.Server
	web        *web.Server
	// page is where people and scrapers are answered; nil: nowhere.
	page net.Listener
	// begun says that the data plane has been put to work.
	begun atomic.Bool
}

// newAgent wires an agent on a data plane. Without a page nobody is answered but
// on the control socket.
func newAgent(started time.Time, source *file.Source, dp plane, page net.Listener, log *slog.Logger) *agent {
	desired := store.New()
	a := &agent{
		started:    started,
		log:        log,
		source:     source,
		plane:      dp,
		page:       page,
		store:      desired,
		reconciler: reconcile.New(dp, desired, log),
	}
	shown := observe.Agent{
		Version:     version,
		Commit:      commit(),
		Node:        source.Config().Node.Name,
		Kernel:      kernel(),
		Started:     started,
		Listen:      pageAddress(page),
		Kind:        dp.kind,
		Config:      a.config,
		Attachments: dp.attachments,
		Desired:     a.store.Snapshot,
		Programmed:  a.reconciler.Statuses,
		Work:        a.reconciler.Work,
		Calling:     a.reconciler.Calling,
		Begun:       a.begun.Load,
		Stats:       dp.Stats,
		Trace:       dp.trace,
		Flows:       dp.flows,
		Events:      &a.happened,
		Reload:      a.reload,
	}
	a.observer = observe.NewObserver(shown, log)
	a.server = observe.NewServer(a.observer, log)
	a.web = web.New(web.Config{
		Observer: a.observer, Alive: a.observer.Alive, Ready: shown.Ready,
		Metrics: metric.Handler(shown, log), Log: log,
	})
	return a
}

// run lets the parts work until ctx ends or one of them fails, and shows them
// on the socket.
func (a *agent) run(ctx context.Context, claim *observe.Claim) error {
	socket, err := claim.Listen()
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.source.Run(ctx, a.apply) })
	group.Go(func() error {
		a.reconciler.Run(ctx)
		return nil
	})
	group.Go(func() error {
		a.observer.Run(ctx)
		return nil
	})
	group.Go(func() error { return a.server.Serve(ctx, socket) })
	group.Go(func() error {
		a.servePage(ctx)
		return nil
	})
	group.Go(func() error {
		a.followSignals(ctx, hangup)
		return nil
	})
	group.Go(func() error { return a.begin(ctx) })
	return group.Wait()
}

// apply makes a configuration what is desired.
func (a *agent) apply(config *file.Config) error {
	_, err := a.store.Set(config.Services)
	return err
}

// reload reads the configuration and waits until what it says has been tried.
func (a *agent) reload(ctx context.Context) error {
	if err := a.source.Reload(); err != nil {
		return err
	}
	return a.reconciler.Settled(ctx, a.store.Snapshot().Revision)
}

// config tells observe about the configuration file.
func (a *agent) config() observe.Config {
	state := a.source.State()
	c := observe.Config{Path: state.Path, Digest: state.Digest, Loaded: state.Loaded, Refused: state.Refused}
	if state.Err != nil {
		c.Error = state.Err.Error()
	}
	return c
}

// followSignals reloads on SIGHUP. The source logs a file that it refuses and
// keeps the error for the status.
func (a *agent) followSignals(ctx context.Context, hangup <-chan os.Signal) {
	for {
		select {
		case <-hangup:
			_ = a.source.Reload()
		case <-ctx.Done():
			return
		}
	}
}

// begin puts the data plane to work when the first configuration has been tried
// as a whole; before revision 1 nothing is desired.
func (a *agent) begin(ctx context.Context) error {
	if a.reconciler.Settled(ctx, 1) != nil {
		return nil //nolint:nilerr // it waits in vain only if the agent ends, which is no error
	}
	if err := a.plane.attach(); err != nil {
		return err
	}
	a.begun.Store(true)
	programmed := 0
	statuses := a.reconciler.Statuses()
	for _, s := range statuses {
		if s.Error == "" {
			programmed++
		}
	}
	a.log.Info("ready",
		slog.Int64("milliseconds", time.Since(a.started).Milliseconds()),
		slog.Int("services", len(statuses)), slog.Int("programmed", programmed),
		slog.Uint64("revision", a.store.Snapshot().Revision))
	return nil
}
