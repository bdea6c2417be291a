// SPDX-License-Identifier: Apache-2.0

// Package speaker is the balancer's side of BGP: it announces routes to all
// configured peers (DESIGN.md §7). It learns none, so that a balancer can never
// become transit.
package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
	"fairlead.io/fairlead/internal/bgp/gobgp"
	"fairlead.io/fairlead/internal/bgp/neighbour"
)

// Speaker announces routes to peers. Its methods may be called from several
// goroutines.
type Speaker struct {
	local     bgp.Local
	log       *slog.Logger
	reception *reception
	watcher   *bfd.Manager

	mu         sync.Mutex
	neighbours map[netip.Addr]*neighbour.Neighbour
	// routes are what was set last; set says that it was.
	routes      []bgp.Route
	set, closed bool
}

// Open makes a speaker without peers and routes. It is to be closed, or abandoned.
func Open(local bgp.Local, log *slog.Logger) *Speaker {
	s := &Speaker{
		local: local, log: log, reception: newReception(log),
		neighbours: make(map[netip.Addr]*neighbour.Neighbour),
	}
	s.watcher = bfd.New(log, s.watched)
	return s
}

// Configure makes peers, which have different addresses, all that there are. One
// that is as it was keeps its session; a changed one begins anew, and one that is
// gone is told so.
func (s *Speaker) Configure(ctx context.Context, peers []bgp.Peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.retire(peers)
	err := s.start(ctx, peers)
	return errors.Join(err, s.reception.expect(s.neighbours), s.watch())
}

// errClosed is what a speaker says that is no more.
var errClosed = errors.New("bgp speaker closed")

// retire stops the neighbours that are not, or not so, among peers.
func (s *Speaker) retire(peers []bgp.Peer) {
	var stopping sync.WaitGroup
	defer stopping.Wait()
	for addr, n := range s.neighbours {
		reason := gobgp.Deconfigured
		if i := slices.IndexFunc(peers, func(p bgp.Peer) bool { return p.Address == addr }); i >= 0 {
			if old := n.Peer(); old.Equal(&peers[i]) {
				continue
			}
			reason = gobgp.Changed
		}
		delete(s.neighbours, addr)
		stopping.Go(func() { n.Stop(&reason) })
	}
}

// start starts the neighbours that there aren't yet, and only then lets them begin:
// instances of the library write to what others read (see package gobgp).
func (s *Speaker) start(ctx context.Context, peers []bgp.Peer) error {
	var started []*neighbour.Neighbour
	var errs []error
	for _, peer := range peers {
		if s.neighbours[peer.Address] != nil {
			continue
		}
		n, err := neighbour.Start(ctx, s.local, peer, func() { s.watcher.Begin(peer.Address) }, s.log)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.neighbours[peer.Address] = n
		started = append(started, n)
	}
	if s.set {
		for _, n := range started {
			errs = append(errs, s.tell(n))
		}
	}
	return errors.Join(errs...)
}

// Set makes routes, which have different prefixes, all that is announced. What
// differs reaches the library at once and peers as soon as they read; no peer is
// waited for. Before the first Set no session is begun.
func (s *Speaker) Set(routes []bgp.Route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes, s.set = slices.Clone(routes), true
	var errs []error
	for _, n := range s.neighbours {
		errs = append(errs, s.tell(n))
	}
	return errors.Join(errs...)
}

func (s *Speaker) tell(n *neighbour.Neighbour) error {
	if err := n.Set(s.routes); err != nil {
		return fmt.Errorf("peer %s: %w", n.Peer().Address, err)
	}
	return nil
}

// Peers are the states of all peers, by address.
func (s *Speaker) Peers() []bgp.PeerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]bgp.PeerState, 0, len(s.neighbours))
	for addr, n := range s.neighbours {
		state := n.State()
		if b, ok := s.watcher.State(addr); ok {
			state.BFD, state.BFDSince, state.BFDReason, state.BFDFlaps = b.State, b.Since, b.Reason, b.Flaps
		}
		states = append(states, state)
	}
	slices.SortFunc(states, func(a, b bgp.PeerState) int { return a.Address.Compare(b.Address) })
	return states
}

// Close withdraws all routes, waits until the peers have been told or ctx ends, and
// ends the sessions with a notification. To close again does nothing.
func (s *Speaker) Close(ctx context.Context) error {
	return s.stop(func(n *neighbour.Neighbour) error { return n.Leave(ctx) }, s.watcher.Close)
}

// Abandon ends the sessions without a word: peers with graceful restart keep the
// routes until their time is over, or until the next agent has announced its own.
// BFD says nothing either: a router that heard from it first, before it has seen its
// session end, would take the routes away.
func (s *Speaker) Abandon() {
	_ = s.stop(func(n *neighbour.Neighbour) error { n.Stop(nil); return nil }, s.watcher.Abandon) // which has no errors
}

// stop ends all neighbours at the same time, and then what served them.
func (s *Speaker) stop(end func(*neighbour.Neighbour) error, unwatch func()) error {
	s.mu.Lock()
	neighbours, again := s.neighbours, s.closed
	s.neighbours, s.closed = make(map[netip.Addr]*neighbour.Neighbour), true
	s.mu.Unlock()
	if again {
		return nil
	}
	var wait sync.WaitGroup
	errs := make(chan error, len(neighbours))
	for _, n := range neighbours {
		wait.Go(func() { errs <- end(n) })
	}
	wait.Wait()
	close(errs)
	s.reception.close()
	unwatch()
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}
