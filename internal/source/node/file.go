// SPDX-License-Identifier: Apache-2.0

// Package node has the sources of a balancer node: its configuration file, alone or joined with an API
// server or a cluster. The agent runs one of them.
package node

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/api"
	"fairlead.io/fairlead/internal/source/follow"
	"fairlead.io/fairlead/internal/spec"
)

// StateRoot has a folder for each node's last state.
const StateRoot = "/run/fairlead"

// Options are common to all sources.
type Options struct {
	// StateDir is the folder of the last state of services that aren't in the file; empty: in
	// StateRoot.
	StateDir string
	// Limits are the services that a node can serve, for all kinds of data plane together.
	Limits dataplane.Limits
	Log    *slog.Logger
}

// stateDir is the folder of the last state of a node.
func (o *Options) stateDir(node string) string {
	return cmp.Or(o.StateDir, filepath.Join(StateRoot, node))
}

// File is the source of a balancer node whose configuration file has everything.
type File struct {
	*config.Source[*config.Config]
	// Permanent says that no agent will run here again after SIGTERM.
	Permanent bool
	// Follow follows the backends of services that don't list them; nil for none.
	Follow *follow.Follower
	Log    *slog.Logger
}

// OpenFile returns the source of a file.
func OpenFile(settings *config.Source[*config.Config], k KubernetesOptions, permanent bool, o Options) File {
	conf := settings.Config()
	limits := o.Limits.Of(string(conf.Dataplane.Kind))
	return File{Source: settings, Permanent: permanent, Log: o.Log, Follow: follow.New(follow.Options{
		StateDir: o.stateDir(conf.Node.Name), Node: conf.Node.Name, Cluster: k.Load, Log: o.Log,
		Check: func(s *lb.Service) []lb.FieldError { return spec.CheckOnNode(s, limits, len(conf.Node.TunnelEnds) > 0) },
	})}
}

// collectDelay is the time without a change of the file after which garbage is collected.
const collectDelay = 100 * time.Millisecond

// delivery joins a file with followed backends: a change of either is one update.
type delivery struct {
	File
	apply   func(source.Update) error
	collect *time.Timer

	// mu is held while an update is applied.
	mu sync.Mutex
	// file is the running configuration, applied the same with followed backends; nil before.
	file, applied *config.Config
}

// Run implements source.Source. After the first file, only differences are applied. A large
// file leaves most of an agent's garbage: it is collected after a change, so that the next
// one isn't slowed down by a collection.
func (f File) Run(ctx context.Context, apply func(source.Update) error) error {
	d := &delivery{File: f, apply: apply, collect: time.AfterFunc(collectDelay, runtime.GC)}
	d.collect.Stop()
	if f.Follow == nil {
		return f.Source.Run(ctx, d.deliver)
	}
	defer f.Follow.Wait()
	group, ctx := errgroup.WithContext(ctx)
	started := make(chan struct{})
	start := sync.OnceFunc(func() {
		f.Follow.Await(ctx, source.StartTimeout)
		close(started)
	})
	group.Go(func() error {
		return f.Source.Run(ctx, func(c *config.Config) error {
			f.Follow.Set(ctx, c.Services, c.Followed)
			start()
			err := d.deliver(c)
			if err != nil {
				f.Follow.Set(ctx, f.Config().Services, f.Config().Followed) // which stay in force
			}
			return err
		})
	})
	group.Go(func() error {
		select {
		case <-started:
			source.Deliver(ctx, f.Follow.Changed, func(bool) error { return d.deliver(nil) }, f.Log)
		case <-ctx.Done():
		}
		return nil
	})
	return group.Wait()
}

// deliver applies the difference between a changed file with followed backends and the applied configuration; without a
// file it is the changes of followed backends.
func (d *delivery) deliver(file *config.Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := file != nil
	if file = cmp.Or(file, d.file); file == nil {
		return nil // the first file comes next
	}
	next := *file
	var before []lb.Service
	if d.applied != nil {
		before = d.applied.Services
	}
	all, incomplete := d.Follow.Complete(file.Services, before)
	next.Services = all
	update := next.Update(d.applied)
	if update.Incomplete = incomplete; !changed {
		update.Routes = nil
	}
	if err := d.apply(update); err != nil {
		return err
	}
	if changed {
		warnConnected(d.Log, networksOf(file.Node.Interfaces), update.Changed)
	}
	if changed && d.applied != nil {
		d.collect.Reset(collectDelay)
	}
	d.file, d.applied = file, &next
	return nil
}

// Shutdown plans the end after SIGTERM: the node leaves with its agent.
func (f File) Shutdown(context.Context) source.Shutdown {
	return source.Shutdown{Reason: "SIGTERM", Permanent: f.Permanent}
}

// Forget removes the saved backends.
func (f File) Forget() error { return f.Follow.Forget() }

// Followed returns how backends are followed.
func (f File) Followed() source.Followed { return source.Followed{Backends: f.Follow.State()} }

// API joins an API server with a file that has all but services.
type API struct {
	File
	Server *api.Source
}

// OpenAPI returns the source of a file that names an API server.
func OpenAPI(file File, o Options) (*API, error) {
	conf := file.Config()
	server, err := api.Open(api.Options{
		Server: *conf.APIServer, Node: conf.Node.Name, Limits: o.Limits.Of(string(conf.Dataplane.Kind)),
		MaxServices: conf.Dataplane.Services, MaxBackends: conf.Dataplane.Backends, TunnelEnds: len(conf.Node.TunnelEnds) > 0,
		StateDir: o.stateDir(conf.Node.Name), Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	s := &API{file, server}
	s.setPeers(conf.Update(nil).Routes) // the first report has them
	return s, nil
}

// Run delivers the server's services, and the file's routes.
func (s *API) Run(ctx context.Context, apply func(source.Update) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return s.Source.Run(ctx, func(c *config.Config) error {
			routes := c.Update(nil).Routes
			s.setPeers(routes)
			return apply(source.Update{Routes: routes})
		})
	})
	group.Go(func() error { return s.Server.Run(ctx, apply) })
	return group.Wait()
}

// setPeers has the server know the addresses of BGP peers, which it never assigns.
func (s *API) setPeers(routes *source.Routes) {
	var peers []netip.Addr
	if routes != nil {
		for _, p := range routes.Peers {
			peers = append(peers, p.Address)
		}
	}
	s.Server.SetPeers(peers)
}

// Forget removes the saved services of the server.
func (s *API) Forget() error { return s.Server.Forget() }

// Followed returns how the server is followed.
func (s *API) Followed() source.Followed { return source.Followed{Clouds: new(s.Server.State())} }
