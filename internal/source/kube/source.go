// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/saved"
	"fairlead.io/fairlead/internal/wait"
)

// Options configure a Source.
type Options struct {
	Config
	// API has the address of the API server and the agent's credentials.
	API *rest.Config
	// Control has the address and credentials for the control cluster, which has LoadBalancers and
	// all other objects of Fairlead, if it isn't the node's cluster; nil for the same cluster. Then
	// the node's cluster has Nodes, the DaemonSet, and Services that aren't served.
	Control *rest.Config
	// Namespace is the agents' namespace, which has their Secrets.
	Namespace string
	// DaemonSet is the name of the agents' DaemonSet in Namespace; empty if unknown.
	DaemonSet string
	// OwnAddresses returns the addresses of the agent's interfaces, which are reported; nil for none.
	OwnAddresses func() []netip.Addr
	// StateDir is a folder for the saved state, used by this agent only.
	StateDir string
	Log      *slog.Logger
}

// stateFile is the file in Options.StateDir that has the saved state.
const stateFile = "state.json"

// Source watches the API server. Its methods may be called concurrently.
type Source struct {
	Options
	// clients are for the node's cluster, control for the control cluster: the same unless there
	// are two.
	clients, control clients
	passwords        passwords
	// wake is signalled when the cache has changed or a list has been read.
	wake   chan struct{}
	saver  *saved.Saver
	checks *healthPorts
	status *source.Status
	lists  *lists

	// running are the followers of lists, until stopFollowers, and the saver.
	running       sync.WaitGroup
	stopFollowers context.CancelFunc

	mu    sync.Mutex
	cache *Cache
	// peers are the last ones, with the files of their passwords.
	peers []bgp.Peer
}

// Open returns a source with the saved state of an earlier agent.
func Open(o Options) (*Source, error) {
	c, err := newClients(o.API)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	control := c
	if o.Control != nil {
		if control, err = newClients(o.Control); err != nil {
			return nil, fmt.Errorf("control cluster: %w", err)
		}
		o.LoadBalancersOnly = true
	}
	if o.StateDir, err = filepath.Abs(o.StateDir); err != nil {
		return nil, err
	}
	if err := makeDir(o.StateDir); err != nil {
		return nil, err
	}
	server := cmp.Or(o.Control, o.API).Host
	s := &Source{
		Options: o, clients: c, control: control, passwords: passwords{dir: o.StateDir},
		wake: make(chan struct{}, 1), checks: &healthPorts{log: o.Log, servers: map[uint16]*healthServer{}},
		cache: NewCache(o.Config), status: source.NewStatus(server, o.Log),
	}
	s.lists = &lists{log: o.Log, status: s.status, server: server, wake: s.wake, states: map[Object]*listState{}}
	s.saver = saved.Open(filepath.Join(o.StateDir, stateFile), o.Node, o.Limits.Check, s.currentState, o.Log)
	if earlier := s.saver.Earlier; earlier != nil && earlier.ASN != o.ASN {
		earlier.Peers = nil // selected for another speaker
	}
	return s, nil
}

// currentState returns the state to save.
func (s *Source) currentState() *saved.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := &saved.State{Node: s.Node, ASN: s.ASN, Services: s.cache.Services(), Peers: s.peers}
	state.Four, state.Six = s.cache.Addresses()
	if routes := s.cache.routing.routes; routes != nil {
		state.Policies = routes.Policies
	}
	return state
}

// Start starts to watch the API server, until ctx or Run ends.
func (s *Source) Start(ctx context.Context) {
	ctx, s.stopFollowers = context.WithCancel(ctx)
	s.lists.follow = func(f watchedList) context.CancelFunc {
		ctx, stop := context.WithCancel(ctx)
		s.running.Go(func() { s.follow(ctx, f) })
		return stop
	}
	s.status.Start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists.set(s.watchedLists())
}

// Addresses returns the node's internal addresses, from the API server or the saved state;
// invalid if its Node has none. Without a saved state it waits for the API server: the agent
// has nothing to serve before, and keeps the interface that it chooses by them.
func (s *Source) Addresses(ctx context.Context) (four, six netip.Addr) {
	until := time.Now().Add(source.StartTimeout)
	if s.saver.Earlier == nil {
		until = time.Time{}
	}
	source.Await(ctx, s.wake, until, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		four, six = s.cache.Addresses()
		return s.cache.nodes[s.Node] != nil || s.lists.synced() // which has no such Node
	})
	if !four.IsValid() && !six.IsValid() && s.saver.Earlier != nil {
		return s.saver.Earlier.Four, s.saver.Earlier.Six
	}
	return four, six
}

// Run delivers updates until ctx ends, and then stops watching: first all services, once
// every list has been read, or the saved state if that takes longer than source.StartTimeout; then
// changes. Without a saved state nothing is delivered before all lists have been read, so
// the kernel keeps the configuration of an earlier agent.
func (s *Source) Run(ctx context.Context, apply func(source.Update) error) error {
	defer s.running.Wait()
	defer s.stopFollowers()
	defer s.checks.close()
	restored := s.status.AwaitObjects(ctx, s.wake, s.lists.synced, s.saver.Earlier, func(u source.Update) error {
		u.Routes = &source.Routes{Peers: s.saver.Earlier.Peers, Policies: s.saver.Earlier.Policies}
		return apply(u)
	})
	if ctx.Err() != nil {
		return nil
	}
	s.running.Go(func() { s.saver.Run(ctx) })
	source.Deliver(ctx, s.wake, func(whole bool) error {
		change := s.change(whole, restored)
		err := s.deliver(change, apply)
		if err == nil {
			restored = nil
			s.status.SetDelivered(change.Newest)
		}
		return err
	}, s.Log)
	return nil
}

// deliver applies a change unless it is empty, and updates passwords, saved state and State.
func (s *Source) deliver(c Change, apply func(source.Update) error) error {
	if c.Empty() && !c.Whole {
		s.updateState()
		return nil
	}
	u := c.Update
	if c.Routes != nil {
		peers, err := s.passwords.store(c.Routes.Peers)
		if err != nil {
			s.Log.Error("passwords of BGP peers not stored", "error", err)
		}
		u.Routes = &source.Routes{Peers: peers, Policies: c.Routes.Policies}
		s.mu.Lock()
		s.peers = peers
		s.mu.Unlock()
	}
	err := apply(u)
	if c.Routes != nil {
		s.saver.Save() // before the files that the old state refers to are removed
		s.passwords.removeOthers(u.Routes.Peers)
	}
	s.updateState()
	s.saver.Changed()
	return err
}

// change returns the cache's changes, or all services. Restored services that are not among these
// are leaving.
func (s *Source) change(whole bool, restored []lb.Service) Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cache.Flush()
	if !whole {
		return c
	}
	c.Whole, c.Changed, c.Removed, c.Routes = true, s.cache.Services(), nil, s.cache.routing.routes
	for i := range restored {
		vip := restored[i].VIP
		if !slices.ContainsFunc(c.Changed, func(s lb.Service) bool { return s.VIP == vip }) {
			c.Leaving = append(c.Leaving, vip)
		}
	}
	return c
}

// changed applies a change of a list's objects to the cache.
func (s *Source) changed(f watchedList, change func(*Cache)) {
	s.lists.responded(f)
	s.mu.Lock()
	change(s.cache)
	if s.cache.routing.dirty { // a peer, or this node's labels: Secrets may have to be watched
		for _, ended := range s.lists.set(s.watchedLists()) {
			s.cache.Delete(ended)
		}
	}
	s.mu.Unlock()
	wait.Signal(s.wake)
}

// Leaving returns why no other agent will follow on this node after this one stops; empty if
// one will, or if that is unknown.
func (s *Source) Leaving() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lists.synced() {
		return ""
	}
	return s.cache.Leaving()
}
