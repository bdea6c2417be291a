// SPDX-License-Identifier: Apache-2.0

// Package api is the source of an agent without a Kubernetes cluster that follows "fairlead
// apiserver": a stream of LoadBalancers (watch.go), each of which it translates into services
// (balancer.go). A Source delivers the changes to the agent, writes reports of the node to the API
// server (report.go), and saves the last state in a file, which an agent serves that starts while
// the API server is unreachable.
//
// The API server makes all decisions: addresses, limits, and permissions of tenants. All its nodes
// serve all LoadBalancers.
package api

import (
	"context"
	"crypto/tls"
	"errors"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/owner"
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
	saver *saved.Saver
	// saved is the state of an earlier agent; nil for none.
	saved *saved.State
	// wake is signalled when objects have changed, synced when a server has sent all of them.
	wake, synced chan struct{}
	// transport returns how requests are sent.
	transport func(*tls.Config) http.RoundTripper
	// seed is of the digests of objects.
	seed   maphash.Seed
	status *source.Status

	// reporting serializes reports.
	reporting sync.Mutex
	reports   reports

	mu sync.Mutex
	// vips has the services of all objects.
	vips *owner.VIPs
	// objects are all LoadBalancers; nil before they have been read. Run's connection alone writes it.
	objects map[source.Object]status
	// peers are the node's BGP peers.
	peers []netip.Addr
	// followed is the URL of the server that is being followed; empty for none.
	followed string
	// errors are why each server of Options could not be followed.
	errors []string
	// version is the server's version of objects.
	version string
	// identity identifies the file of the server.
	identity string
}

// status is the digest of an object's text, and the problems of the object.
type status struct {
	digest   uint64
	problems []string
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
		Options: o, wake: make(chan struct{}, 1), synced: make(chan struct{}, 1), transport: newTransport,
		vips: owner.New(o.MaxServices, o.MaxBackends), errors: make([]string, len(o.Server.URLs)),
		status: source.NewStatus(strings.Join(o.Server.URLs, ", "), o.Log),
	}
	s.seed = maphash.MakeSeed()
	s.saver = saved.NewSaver(s.statePath(), s.currentState, o.Log)
	s.saved, err = saved.Load(s.statePath(), o.Node, func(svc *lb.Service) bool { return len(s.check(svc)) == 0 })
	if err != nil {
		o.Log.Warn("saved state not usable", "error", err)
	}
	if s.saved != nil {
		s.identity, s.version = s.saved.Identity, s.saved.ServerVersion
	}
	return s, nil
}

func (s *Source) statePath() string { return filepath.Join(s.StateDir, stateFile) }

// currentState returns the state to save.
func (s *Source) currentState() *saved.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &saved.State{Node: s.Node, Services: s.vips.Services(), Identity: s.identity, ServerVersion: s.version}
}

// Forget removes the saved state, after Run has ended.
func (s *Source) Forget() error {
	if err := os.Remove(s.statePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

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
	parts.Go(func() { s.repeatReports(ctx) })
	s.status.AwaitObjects(ctx, s.wake, s.known, s.saved, apply)
	if ctx.Err() != nil {
		return nil
	}
	parts.Go(func() { s.saver.Run(ctx) })
	source.Deliver(ctx, s.wake, func(whole bool) error { return s.deliver(whole, apply) }, s.Log)
	return nil
}

// known reports whether all objects have been read.
func (s *Source) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects != nil
}

// deliver applies the changed services, or all services.
func (s *Source) deliver(whole bool, apply func(source.Update) error) error {
	s.mu.Lock()
	u, version, objects, problems := s.vips.Flush(), s.version, len(s.objects), s.vips.Problems()
	if whole {
		u = source.Update{Whole: true, Changed: s.vips.Services()}
	}
	for id, o := range s.objects {
		for _, text := range o.problems {
			problems = append(problems, v1alpha1.NodeProblem{Object: id.String(), Message: text})
		}
	}
	s.mu.Unlock()
	if whole || len(u.Changed)+len(u.Removed) > 0 {
		if err := apply(u); err != nil {
			return err
		}
		s.saver.Changed()
	}
	source.SortProblems(problems)
	s.status.SetObjects(objects, problems)
	s.status.SetDelivered(v1alpha1.ObservedVersions{LoadBalancers: version})
	return nil
}

// State returns the state of the connection and of the objects.
func (s *Source) State() source.State { return s.status.State() }

// Draining implements source.Reporter: only operators take the node out of service.
func (s *Source) Draining() bool { return false }

// Delivered implements source.Reporter.
func (s *Source) Delivered() v1alpha1.ObservedVersions { return s.status.Delivered() }
