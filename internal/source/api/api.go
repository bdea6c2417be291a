// SPDX-License-Identifier: Apache-2.0

// Package api is the source of an agent without a Kubernetes cluster that follows "fairlead
// apiserver": a stream of LoadBalancers (watch.go, servers.go), each of which it translates into services
// (balancer.go). A Source delivers the changes to the agent, writes reports of the node to the API
// server (report.go), and saves the last state in a file, which an agent serves that starts while
// the API server is unreachable.
//
// The API server makes all decisions: addresses, limits, and permissions of tenants. All its nodes
// serve all LoadBalancers.
package api

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/saved"
)

// Options configure a Source.
type Options struct {
	Server source.Server
	// Node is the node's name.
	Node   string
	Limits dataplane.Limits
	// MaxServices and MaxBackends are the capacities of the node's data plane: of services,
	// and of the backends of all services together.
	MaxServices, MaxBackends int
	// TunnelEnds says that the node has tunnel end points for services in VXLAN and Geneve
	// segments.
	TunnelEnds bool
	// StateDir is a folder for the saved state, used by this agent only.
	StateDir string
	Log      *slog.Logger
}

// stateFile is the file in Options.StateDir.
const stateFile = "apiserver.json"

// Source follows an API server. Its methods may be called concurrently.
type Source struct {
	Options
	*reports
	saver *saved.Saver
	// wake is signalled when objects have changed.
	wake      chan struct{}
	status    *source.Status
	servers   *servers
	balancers *balancers
}

// Open returns a source with the saved state of an earlier agent.
func Open(o Options) (*Source, error) {
	var err error
	if o.StateDir, err = filepath.Abs(o.StateDir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, err
	}
	s := &Source{
		Options: o, wake: make(chan struct{}, 1), status: source.NewStatus(strings.Join(o.Server.URLs, ", "), o.Log),
		balancers: newBalancers(o),
	}
	s.servers = &servers{Server: o.Server, log: o.Log, status: s.status, transport: newTransport, errors: make([]string, len(o.Server.URLs))}
	s.reports = &reports{node: o.Node, log: o.Log, servers: s.servers, services: s.balancers.services, again: make(chan struct{}, 1), last: map[string]any{}}
	s.saver = saved.Open(filepath.Join(o.StateDir, stateFile), o.Node, s.balancers.check, s.balancers.state, o.Log)
	if earlier := s.saver.Earlier; earlier != nil {
		s.balancers.identity, s.balancers.version = earlier.Identity, earlier.ServerVersion
	}
	return s, nil
}

// Forget removes the saved state, after Run has ended.
func (s *Source) Forget() error { return s.saver.Forget() }

// Run follows the API server and delivers updates until ctx ends: first all services, or the saved
// ones if the server can't be read within source.StartTimeout; then changes. Without a saved state
// nothing is delivered before all objects have been read, so the kernel keeps the configuration of
// an earlier agent.
func (s *Source) Run(ctx context.Context, apply func(source.Update) error) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.status.Start()
	parts.Go(func() { s.follow(ctx) })
	parts.Go(func() { s.reports.repeat(ctx) })
	s.status.AwaitObjects(ctx, s.wake, s.balancers.known, s.saver.Earlier, apply)
	if ctx.Err() != nil {
		return nil
	}
	parts.Go(func() { s.saver.Run(ctx) })
	source.Deliver(ctx, s.wake, func(whole bool) error { return s.deliver(whole, apply) }, s.Log)
	return nil
}

// deliver applies the changed services, or all services.
func (s *Source) deliver(whole bool, apply func(source.Update) error) error {
	c := s.balancers.flush(whole)
	if whole || len(c.Changed)+len(c.Removed) > 0 {
		if err := apply(c.Update); err != nil {
			return err
		}
		s.saver.Changed()
	}
	s.status.SetObjects(c.objects, c.problems)
	s.status.SetDelivered(v1alpha1.ObservedVersions{LoadBalancers: c.version})
	return nil
}

// State returns the state of the connection and of the objects.
func (s *Source) State() source.State { return s.status.State() }

// Draining implements source.Reporter: only operators take the node out of service.
func (s *Source) Draining() bool { return false }

// Delivered implements source.Reporter.
func (s *Source) Delivered() v1alpha1.ObservedVersions { return s.status.Delivered() }
