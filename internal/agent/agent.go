// SPDX-License-Identifier: Apache-2.0

// Package agent runs one node: it applies updates, checks backends, programs the data plane,
// announces routes and serves status. Package balancer opens its parts.
package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/announce"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/health/check"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/web"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/routehook"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/store"
)

// Source delivers the services of a node, and has its settings.
type Source interface {
	source.Source
	// Config is the configuration in force: the node's own settings.
	Config() *config.Config
	// State describes the configuration file; Reload reads it again.
	State() source.File
	Reload() error
	// Shutdown plans the end of the agent after SIGTERM. If ctx ends before the plan
	// is known, another agent takes over.
	Shutdown(ctx context.Context) source.Shutdown
	// Forget removes the state saved for the next agent, once Run has returned.
	Forget() error
	// Followed returns the state of the API servers and backends that are followed.
	Followed() source.Followed
}

// Plane is a data plane as an agent runs it.
type Plane interface {
	dataplane.DataPlane
	dataplane.Attacher
	dataplane.Discarder
	dataplane.Tracer
	dataplane.FlowLister
	dataplane.RefusalReporter
	health.Paths
	// Describe names its kind and its attachments.
	Describe() observe.DataPlane
}

// Speaker announces the node's VIPs to its peers, or makes their routes by a hook.
type Speaker interface {
	announce.Speaker
	// Peers are sorted by address.
	Peers() []bgp.PeerState
	// Close ends all sessions and withdraws their routes. Abandon ends them so that
	// peers with graceful restart keep the routes for the next agent. After one of
	// them the other does nothing.
	Close(ctx context.Context) error
	Abandon()
}

// Config has the parts of an agent.
type Config struct {
	Started time.Time
	// Kernel is the release of the running kernel; empty if it is unknown.
	Kernel string
	Source Source
	Plane  Plane
	// Page is where the status page listens; nil: the agent is shown on the control
	// socket only.
	Page net.Listener
	// Admit, if it isn't nil, lets only some requests reach the page's handler.
	Admit func(http.Handler) http.Handler
	// Speaker is nil if nothing is announced. Hook is nil unless it is the Speaker.
	Speaker Speaker
	Hook    *routehook.Hook
	// Drains is the file in which drains are saved, Verdicts that of the verdicts of
	// health checks.
	Drains, Verdicts string
	// Reporter, unless it is nil, publishes what the node serves and has forwarded. It is called
	// when that has changed, not too often, and again after an error.
	Reporter source.Reporter
	Events   *observe.Recorder
	Log      *slog.Logger
}

// Agent runs one balancer node.
type Agent struct {
	Config
	// The plane's, for control.Agent.
	dataplane.Tracer
	dataplane.FlowLister

	store      *store.Store
	monitor    *health.Monitor
	drains     *store.Drains
	reconciler *reconcile.Reconciler
	announcer  *announce.Announcer // nil without a speaker
	intake     intake
	observer   *observe.Observer
	web        *web.Server
	// attached is closed once the data plane has been put to work.
	attached chan struct{}
	// permanent is Shutdown's.
	permanent bool
}

// New returns an agent that is started with Run.
func New(c Config) *Agent {
	desired := store.New()
	a := &Agent{
		Config:     c,
		Tracer:     c.Plane,
		FlowLister: c.Plane,
		store:      desired,
		drains:     store.OpenDrains(c.Drains, desired, c.Log),
		reconciler: reconcile.New(c.Plane, desired, c.Log),
		attached:   make(chan struct{}),
	}
	a.monitor = health.New(health.Config{
		Paths:   c.Plane,
		Prober:  check.New,
		Probes:  check.MaxProbes(),
		Report:  a.intake.applyVerdicts,
		Earlier: store.LoadVerdicts(c.Verdicts, c.Log),
		Log:     c.Log,
	})
	a.intake.monitor, a.intake.store, a.intake.plane, a.intake.log = a.monitor, a.store, c.Plane, c.Log
	var policies []bgp.Policy // without BGP the routes of an earlier agent have ended, too
	if c.Speaker != nil {
		config := c.Source.Config().BGP
		if c.Hook != nil {
			config = &bgp.Config{}
		}
		a.announcer = announce.New(announce.Config{
			BGP: config, Store: a.store, Speaker: c.Speaker, Events: c.Events, Log: c.Log,
		})
		a.intake.announcer, a.intake.local, policies = a.announcer, config.Local, config.Policies
	}
	a.intake.discard(policies)
	a.observer = observe.NewObserver(a, c.Events, c.Log)
	a.web = web.New(web.Config{
		Observer: a.observer, Ready: a.observer.Ready, Admit: c.Admit, Log: c.Log,
		Metrics: slices.Concat(a.reconciler.Metrics(), a.monitor.Metrics()),
	})
	return a
}

// Permanent reports, once Run has returned, that no agent will run here again.
func (a *Agent) Permanent() bool { return a.permanent }

// Run runs the agent until ctx ends or one of its parts fails, and shows it on
// the control socket. When terminate is closed the agent shuts down, which drains
// the node first if it leaves.
func (a *Agent) Run(ctx context.Context, claim *control.Claim, terminate <-chan struct{}) error {
	socket, err := claim.Listen()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context){
		a.monitor.Run,
		a.reconciler.Run,
		a.announce,
		a.observer.Run,
		a.servePage,
		func(ctx context.Context) { a.Events.Follow(ctx, a.store.Watch) },
		func(ctx context.Context) { a.store.SaveVerdicts(ctx, a.Verdicts, a.Log) },
		func(ctx context.Context) { control.ReloadOnHangup(ctx, a.Source.Reload) },
		a.probeRefused,
		a.report,
		a.reportStatistics,
		func(ctx context.Context) { a.shutDown(ctx, terminate, stop) },
	} {
		group.Go(func() error {
			part(ctx)
			return nil
		})
	}
	group.Go(func() error {
		defer a.intake.handoffs.waiting.Wait()
		return a.Source.Run(ctx, func(u source.Update) error { return a.intake.apply(ctx, u) })
	})
	group.Go(func() error { return control.Serve(ctx, socket, a, a.observer, a.Log) })
	group.Go(func() error { return a.start(ctx) })
	return group.Wait()
}

// start puts the data plane to work when each service of the first update has
// been tried, and keeps it at work until ctx ends.
func (a *Agent) start(ctx context.Context) error {
	a.prepare(ctx)
	err := a.reconciler.Settled(ctx, 1)
	if err == nil {
		err = a.Plane.Attach(ctx)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end of ctx is not an error
	}
	if err != nil {
		return err
	}
	close(a.attached)
	if a.announcer != nil {
		a.announcer.Begin()
	}
	programmed := 0
	snapshot := a.store.Snapshot()
	statuses := snapshot.Statuses()
	for _, s := range statuses {
		if s.Error == "" {
			programmed++
		}
	}
	a.Log.Info("ready",
		slog.Int64("milliseconds", time.Since(a.Started).Milliseconds()),
		slog.Int("services", len(statuses)), slog.Int("programmed", programmed),
		slog.Uint64("revision", snapshot.Revision))
	trimHeap()
	a.Plane.KeepAttached(ctx, func(missing error) {
		if a.announcer != nil {
			a.announcer.SetMissing(missing)
		}
	})
	return nil
}

// prepare prepares the data plane for the first services, while they are programmed.
func (a *Agent) prepare(ctx context.Context) {
	snapshot, changed := a.store.Watch()
	for snapshot.Revision == 0 {
		select {
		case <-changed:
			snapshot, changed = a.store.Watch()
		case <-ctx.Done():
			return
		}
	}
	services := make([]*lb.Service, len(snapshot.Services))
	for i, entry := range snapshot.Services {
		services[i] = entry.Service
	}
	a.Plane.Prepare(services)
}

// heapGrowth is by how many percent the heap of an agent that has started may grow until garbage is
// collected. It allocates little from then on: with 4,096 services of 16 backends a collection every
// three seconds.
const heapGrowth = 30

// SetHeapGrowth sets by how many percent the heap may grow. The environment's GOGC takes
// precedence.
func SetHeapGrowth(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// trimHeap returns to the kernel what only the start has needed, such as the syntax tree of
// the file.
func trimHeap() {
	SetHeapGrowth(heapGrowth)
	debug.FreeOSMemory()
}

// probeRefused has backends probed that refuse clients.
func (a *Agent) probeRefused(ctx context.Context) {
	refused := a.Plane.Refused()
	for {
		select {
		case r := <-refused:
			a.monitor.Hint(r.VIP, r.Backend)
		case <-ctx.Done():
			return
		}
	}
}

// servePage serves the status page until ctx ends. The agent runs on without it.
func (a *Agent) servePage(ctx context.Context) {
	if a.Page == nil {
		return
	}
	if err := a.web.Serve(ctx, a.Page); err != nil {
		a.Log.Error("status page failed", "error", err)
	}
}

// announce runs the announcer until ctx ends. Routes that were not withdrawn by
// then are left to the next agent.
func (a *Agent) announce(ctx context.Context) {
	if a.announcer != nil {
		a.announcer.Run(ctx)
		a.Speaker.Abandon()
	}
}
