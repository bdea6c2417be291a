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
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/api"
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
	Log       *slog.Logger
}

// collectDelay is the time without a change of the file after which garbage is collected.
const collectDelay = 100 * time.Millisecond

// Run implements source.Source. After the first file, only differences are applied. A large
// file leaves most of an agent's garbage: it is collected after a change, so that the next
// one isn't slowed down by a collection.
func (f File) Run(ctx context.Context, apply func(source.Update) error) error {
	var applied *config.Config
	collect := time.AfterFunc(collectDelay, runtime.GC)
	collect.Stop()
	return f.Source.Run(ctx, func(c *config.Config) error {
		update := c.Update(applied)
		if err := apply(update); err != nil {
			return err
		}
		warnConnected(f.Log, networksOf(c.Node.Interfaces), update.Changed)
		if applied != nil {
			collect.Reset(collectDelay)
		}
		applied = c
		return nil
	})
}

// Shutdown plans the end after SIGTERM: the node leaves with its agent.
func (f File) Shutdown(context.Context) source.Shutdown {
	return source.Shutdown{Reason: "SIGTERM", Permanent: f.Permanent}
}

// Forget does nothing: a file saves no state.
func (File) Forget() error { return nil }

// Followed returns how the API server of a cluster is followed, and one for clouds: neither.
func (File) Followed() (cluster, clouds *source.State) { return nil, nil }

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
func (s *API) Followed() (cluster, clouds *source.State) { return nil, new(s.Server.State()) }
