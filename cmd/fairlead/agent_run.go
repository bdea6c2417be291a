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

	"fairlead.io/fairlead/internal/bgp/announce"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/drain"
	"fairlead.io/fairlead/internal/event"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/health/probe"
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
	// paths are the ways of health checks.
	paths health.Paths
	// attach puts it to work once the first services are programmed.
	attach      func() error
	attachments func() []observe.Attachment
	trace       func(context.Context, dataplane.Packet) (dataplane.Trace, error)
	flows       func(context.Context, dataplane.FlowQuery) (dataplane.Flows, error)
	countFlows  func(context.Context) (dataplane.FlowCounts, error)
	// refused delivers connections that backends refused; nil: it sees none.
	refused <-chan dataplane.Refusal
}

// parts are what an agent is made of.
type parts struct {
	started time.Time
	source  source
	plane   plane
	// page is where people and scrapers are answered; nil: nowhere but on the
	// control socket.
	page net.Listener
	// speaker announces what is served; nil without a BGP section.
	speaker routeSpeaker
	// drains is the file in which drains are remembered.
	drains string
	tell   *event.Teller
	log    *slog.Logger
}

// agent is the story of DESIGN.md §1 on one node: source, store, health,
// reconcile, data plane, routes, observe.
type agent struct {
	parts
	store      *store.Store
	monitor    *health.Monitor
	book       *drain.Book
	reconciler *reconcile.Reconciler
	announcer  *announce.Announcer // nil without a speaker
	departures departures
	observer   *observe.Observer
	server     *observe.Server
	web        *web.Server
	// begun says that the data plane has been put to work.
	begun atomic.Bool
	// forever says, when run has returned, that no agent comes again.
	forever bool
}

// newAgent wires an agent.
func newAgent(p parts) *agent {
	desired := store.New()
	a := &agent{
		parts:      p,
		store:      desired,
		book:       drain.Open(p.drains, desired, p.log),
		reconciler: reconcile.New(p.plane, desired, p.log),
	}
	a.monitor = health.New(health.Config{
		Paths:  p.plane.paths,
		Prober: probe.New,
		Probes: probe.Most(),
		Report: func(verdicts []health.Verdict) { desired.Judge(verdicts) },
		Log:    p.log,
	})
	a.announcer = a.newAnnouncer()
	shown := observe.Agent{
		Version:     version,
		Commit:      commit(),
		Node:        p.source.Config().Node.Name,
		Kernel:      kernel(),
		Started:     p.started,
		Listen:      pageAddress(p.page),
		Kind:        p.plane.kind,
		Config:      a.config,
		Kubernetes:  p.source.kubernetes,
		Attachments: p.plane.attachments,
		Desired:     desired.Snapshot,
		Programmed:  a.reconciler.Statuses,
		Work:        a.reconciler.Work,
		Calling:     a.reconciler.Calling,
		Begun:       a.begun.Load,
		Stats:       p.plane.Stats,
		Trace:       p.plane.trace,
		Flows:       p.plane.flows,
		CountFlows:  p.plane.countFlows,
		Drain:       a.drain,
		Undrain:     a.undrain,
		Routes:      a.routes,
		Events:      &p.tell.Latest,
		Reload:      a.reload,
	}
	a.observer = observe.NewObserver(shown, p.log)
	a.server = observe.NewServer(a.observer, p.log)
	a.web = web.New(web.Config{
		Observer: a.observer, Alive: a.observer.Alive, Ready: shown.Ready,
		Metrics: metric.Handler(shown, p.log), Log: p.log,
	})
	return a
}

// run lets the parts work until ctx ends or one of them fails, and shows them
// on the socket. When terminate is closed the node is drained first.
func (a *agent) run(ctx context.Context, claim *observe.Claim, terminate <-chan struct{}) error {
	socket, err := claim.Listen()
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context){
		a.monitor.Run,
		a.reconciler.Run,
		a.announce,
		a.observer.Run,
		a.servePage,
		func(ctx context.Context) { a.tell.Follow(ctx, a.store) },
		func(ctx context.Context) { followHangups(ctx, hangup, a.source.Reload) },
		a.followRefusals,
		func(ctx context.Context) { a.retire(ctx, terminate, stop) },
	} {
		group.Go(func() error {
			part(ctx)
			return nil
		})
	}
	group.Go(func() error { return a.source.run(ctx, a) })
	group.Go(func() error { return a.server.Serve(ctx, socket) })
	group.Go(func() error { return a.begin(ctx) })
	return group.Wait()
}

// apply makes a configuration what is desired. Health is told first: then it can
// say how new backends count until they have been probed.
func (a *agent) apply(config *file.Config) error {
	a.configureRoutes(config)
	a.monitor.Set(config.Services)
	_, err := a.store.Set(config.Services, a.monitor.States()...)
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
func (a *agent) config() observe.Config { return shownConfig(a.source.State()) }

// shownConfig is what is known of a configuration file in observe's words.
func shownConfig(state file.State) observe.Config {
	c := observe.Config{Path: state.Path, Digest: state.Digest, Loaded: state.Loaded, Refused: state.Refused}
	if state.Err != nil {
		c.Error = state.Err.Error()
	}
	return c
}

// followHangups reloads on SIGHUP. The source logs a file that it refuses and
// keeps the error for the status.
func followHangups(ctx context.Context, hangup <-chan os.Signal, reload func() error) {
	for {
		select {
		case <-hangup:
			_ = reload()
		case <-ctx.Done():
			return
		}
	}
}

// followRefusals has backends probed that refuse clients.
func (a *agent) followRefusals(ctx context.Context) {
	for {
		select {
		case r := <-a.plane.refused:
			a.monitor.Hint(r.VIP, r.Backend)
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
	if a.announcer != nil {
		a.announcer.Begin()
	}
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
