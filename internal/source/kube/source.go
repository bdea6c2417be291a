// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

// Options are what a Source is made of.
type Options struct {
	Config
	// API is how the API server is reached, and who the agent is there.
	API *rest.Config
	// Namespace is the agents' own, in which Secrets are.
	Namespace string
	// DaemonSet is the one in Namespace of whose pods the agent is one; empty if that is
	// not known.
	DaemonSet string
	// StateDir is a folder for what outlives the agent, which nobody else uses.
	StateDir string
	Log      *slog.Logger
}

// Update is what an agent is to do.
type Update struct {
	// Whole says that Changed are all services: others are not to be served any more.
	Whole   bool
	Changed []lb.Service
	// Removed are not to be served any more; for those of Left routers have to be led
	// elsewhere first.
	Removed, Left []lb.VIP
	// Routes says that Peers and Policies are all that there are.
	Routes   bool
	Peers    []bgp.Peer
	Policies []bgp.Policy
}

// patience is how long an agent that starts waits for the API server before it
// serves what was saved.
const patience = 2 * time.Second

// Source follows the API server. Its methods may be called from several
// goroutines.
type Source struct {
	Options
	clients   clients
	passwords passwords
	// saved is what an earlier agent knew; nil if nothing.
	saved *saved
	// wake says that the world has changed, or that all lists have been read.
	wake chan struct{}
	// unsaved says that something has changed since it was last saved.
	unsaved chan struct{}
	checks  *healthPorts

	// saving is held for one file at a time; it is taken before mu.
	saving    sync.Mutex
	followers sync.WaitGroup
	// begin follows one more list until the returned function is called, and end
	// follows none any more.
	begin func(followed) context.CancelFunc
	end   context.CancelFunc

	mu    sync.Mutex
	world *World
	// due are the lists that have not been read yet.
	due     map[Kind]bool
	secrets map[string]*follower
	state   State
	// refused is why the API server doesn't let lists be followed.
	refused map[Object]string
	started time.Time
	// told are the problems that the log has.
	told map[Problem]bool
}

// follower is a Secret that is followed.
type follower struct {
	stop   context.CancelFunc
	listed bool
}

// Open makes a source, and reads what an earlier agent saved.
func Open(o Options) (*Source, error) {
	c, err := newClients(o.API)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	if o.StateDir, err = filepath.Abs(o.StateDir); err != nil {
		return nil, err
	}
	if err := makeDir(o.StateDir); err != nil {
		return nil, err
	}
	s := &Source{
		Options: o, clients: c, passwords: passwords{dir: o.StateDir},
		wake: make(chan struct{}, 1), unsaved: make(chan struct{}, 1), checks: newHealthPorts(o.Log),
		world: NewWorld(o.Config), due: map[Kind]bool{}, secrets: map[string]*follower{}, told: map[Problem]bool{},
		refused: map[Object]string{},
	}
	if s.saved, err = load(o.StateDir, o.Config); err != nil {
		o.Log.Warn("state of an earlier agent can't be used", "error", err)
	}
	return s, nil
}

// Start begins to follow the API server, until ctx or Run ends.
func (s *Source) Start(ctx context.Context) {
	ctx, s.end = context.WithCancel(ctx)
	s.begin = func(f followed) context.CancelFunc {
		ctx, stop := context.WithCancel(ctx)
		s.followers.Go(func() { s.follow(ctx, f) })
		return stop
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = time.Now()
	s.state.Server, s.state.Since = s.API.Host, s.started
	for _, f := range s.clients.follows() {
		s.due[f.kind] = true
		s.begin(f)
	}
}

// Addresses waits until the node's own internal addresses are known, as the API
// server or an earlier agent has it. They are invalid if neither says so in time.
func (s *Source) Addresses(ctx context.Context) (four, six netip.Addr) {
	s.await(ctx, time.Now().Add(patience), func() bool {
		four, six = s.world.Addresses()
		return four.IsValid() || six.IsValid()
	})
	if !four.IsValid() && !six.IsValid() && s.saved != nil {
		return s.saved.Four, s.saved.Six
	}
	return four, six
}

// await waits until a condition holds, which is looked at with the lock held, or
// the time is over; it reports whether it holds. The zero time is never over.
func (s *Source) await(ctx context.Context, until time.Time, holds func() bool) bool {
	var over <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		over = timer.C
	}
	for {
		s.mu.Lock()
		ok := holds()
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-s.wake:
		case <-over:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// Run hands over what is desired until ctx ends, and then follows the API server no
// more: first all of it, once every list has been read, or what was saved if that
// takes too long; then what changes. Without a saved state nothing is handed over
// before: what an earlier agent left in the kernel goes on.
func (s *Source) Run(ctx context.Context, apply func(Update) error) error {
	defer s.followers.Wait()
	defer s.end()
	defer s.checks.close()
	var restored []lb.VIP
	if !s.await(ctx, s.patienceEnds(), s.synced) && ctx.Err() == nil {
		restored = s.restore(apply)
		s.await(ctx, time.Time{}, s.synced)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err := s.hand(s.whole(restored), apply); err != nil {
		return err
	}
	return s.run(ctx, apply)
}

// patienceEnds is when what was saved is served; never if there is nothing.
func (s *Source) patienceEnds() time.Time {
	if s.saved == nil {
		return time.Time{}
	}
	return s.started.Add(patience)
}

// run hands over changes as they come, together with all that have come meanwhile.
func (s *Source) run(ctx context.Context, apply func(Update) error) error {
	var saver sync.WaitGroup
	defer saver.Wait()
	saver.Go(func() { s.keepSaved(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
		s.mu.Lock()
		change := s.world.Flush()
		s.mu.Unlock()
		if change.Empty() {
			s.observeWorld()
			continue
		}
		if err := s.hand(change, apply); err != nil {
			s.Log.Error("change refused", "error", err)
		}
	}
}

// hand hands a change over, and takes note of what it means besides.
func (s *Source) hand(c Change, apply func(Update) error) error {
	u := Update{Whole: c.whole, Changed: c.Changed, Removed: c.Removed, Left: c.Left}
	if c.Routes != nil {
		peers, err := s.passwords.place(c.Routes.Peers)
		if err != nil {
			s.Log.Error("passwords of BGP peers can't be kept", "error", err)
		}
		u.Routes, u.Peers, u.Policies = true, peers, c.Routes.Policies
	}
	err := apply(u)
	if c.Routes != nil {
		s.save() // before what the last state names is gone
		s.passwords.keepOnly(u.Peers)
	}
	s.observeWorld()
	select {
	case s.unsaved <- struct{}{}:
	default:
	}
	return err
}

// whole is everything that is desired now. What was restored and isn't among it
// leaves, as if it had been served all the time.
func (s *Source) whole(restored []lb.VIP) Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.Flush()
	c := Change{whole: true, Changed: s.world.Services(), Routes: s.world.routes}
	for _, vip := range restored {
		if !slices.ContainsFunc(c.Changed, func(s lb.Service) bool { return s.VIP == vip }) {
			c.Left = append(c.Left, vip)
		}
	}
	return c
}

// restore hands over what was saved, and returns whose VIPs these are.
func (s *Source) restore(apply func(Update) error) (vips []lb.VIP) {
	u := Update{Whole: true, Changed: s.saved.Services, Routes: true, Peers: s.saved.Peers, Policies: s.saved.Policies}
	if err := apply(u); err != nil {
		s.Log.Error("saved state refused", "error", err)
		return nil
	}
	s.mu.Lock()
	s.state.Restored = s.saved.At
	s.mu.Unlock()
	s.Log.Warn("the API server can't be reached, the last known state is served", "saved", s.saved.At, "services", len(u.Changed))
	for i := range u.Changed {
		vips = append(vips, u.Changed[i].VIP)
	}
	return vips
}

// changed lets a follower change the world.
func (s *Source) changed(kind Kind, change func(*World)) {
	s.mu.Lock()
	change(s.world)
	s.reached(time.Now())
	if kind == KindPeer {
		s.followSecrets()
	}
	s.mu.Unlock()
	s.signal()
}

func (s *Source) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// listed takes note that a list has been read as a whole.
func (s *Source) listed(f *feed) {
	s.mu.Lock()
	delete(s.due, f.kind)
	s.secretListed(f.kind, f.only)
	s.mu.Unlock()
	s.signal()
}

// secretListed takes note that a Secret has been looked for. It is called with the
// lock held.
func (s *Source) secretListed(kind Kind, name string) {
	if one := s.secrets[name]; kind == KindSecret && one != nil {
		one.listed = true
	}
}

// synced reports whether every list has been read once, those of Secrets that are
// named included. It is called with the lock held.
func (s *Source) synced() bool {
	if len(s.due) > 0 || s.started.IsZero() {
		return false
	}
	for _, f := range s.secrets {
		if !f.listed {
			return false
		}
	}
	return true
}

// followSecrets follows the Secrets that BGPPeers name, and no others. It is called
// with the lock held.
func (s *Source) followSecrets() {
	wanted := map[string]bool{}
	for _, p := range s.world.peers {
		if ref := p.Spec.PasswordSecretRef; ref != nil && s.ASN != 0 {
			wanted[ref.Name] = true
		}
	}
	for name := range wanted {
		if s.secrets[name] != nil {
			continue
		}
		s.secrets[name] = &follower{stop: s.begin(s.clients.secret(s.Namespace, name))}
	}
	maps.DeleteFunc(s.secrets, func(name string, f *follower) bool {
		if !wanted[name] {
			f.stop()
			delete(s.refused, Object{Kind: KindSecret, Name: name})
			s.world.Delete(Object{Kind: KindSecret, Name: name})
		}
		return !wanted[name]
	})
}

// Leaving says why the agent, if it is told to end, goes for good; empty if another
// one will follow on this node, or if that is not known.
func (s *Source) Leaving() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced() {
		return ""
	}
	return s.world.Leaving()
}
