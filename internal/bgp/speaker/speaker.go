// SPDX-License-Identifier: Apache-2.0

// Package speaker is the balancer's side of BGP: it keeps sessions with the
// configured peers and announces the routes of package announce to all of them. It
// learns no routes, so that a balancer never becomes transit. The agent configures
// it. Its Keeper, which keeps one peer connected, also serves the reflector's routers.
package speaker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
	"fairlead.io/fairlead/internal/bgp/session"
)

// Speaker announces routes to peers. Its methods may be called concurrently.
type Speaker struct {
	local    bgp.Local
	log      *slog.Logger
	listener *session.Listener
	bfd      *bfd.Manager
	// passive has the peers that connect. The listener reads it while Configure
	// holds the lock.
	passive atomic.Pointer[map[netip.Addr]*peer]

	mu    sync.Mutex
	peers map[netip.Addr]*peer // nil when the speaker is closed
	// routes of the last Set; set is true after the first.
	routes []bgp.Route
	set    bool
}

// Open returns a speaker without peers and routes. Close or Abandon ends it.
func Open(local bgp.Local, log *slog.Logger) *Speaker {
	s := &Speaker{local: local, log: log, peers: make(map[netip.Addr]*peer)}
	s.passive.Store(&map[netip.Addr]*peer{})
	s.listener = session.NewListener(log, s.passwords, s.accept)
	s.bfd = bfd.New(log, s.bfdChanged)
	return s
}

// Configure makes peers, which have different addresses, all that there are. An
// unchanged peer keeps its session; sessions with changed and removed ones end with
// a notification.
func (s *Speaker) Configure(ctx context.Context, peers []bgp.Peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers == nil {
		return errors.New("bgp speaker closed")
	}
	s.retire(peers)
	err := errors.Join(s.start(peers), s.listen(ctx))
	s.watch()
	return err
}

// retire stops the peers that are not among those configured now.
func (s *Speaker) retire(configured []bgp.Peer) {
	var stopping sync.WaitGroup
	defer stopping.Wait()
	for addr, p := range s.peers {
		reason := session.Deconfigured
		if i := slices.IndexFunc(configured, func(c bgp.Peer) bool { return c.Address == addr }); i >= 0 {
			if p.Peer.Equal(&configured[i]) {
				continue
			}
			reason = session.ConfigurationChanged
		}
		delete(s.peers, addr)
		stopping.Go(func() { p.Stop(reason) })
	}
}

// start starts the missing peers.
func (s *Speaker) start(configured []bgp.Peer) error {
	var errs []error
	for _, config := range configured {
		if s.peers[config.Address] != nil {
			continue
		}
		p := startPeer(s.local, config, session.Dial, func() { s.bfd.Established(config.Address) }, s.log)
		s.peers[config.Address] = p
		if s.set {
			errs = append(errs, p.set(s.routes))
		}
	}
	return errors.Join(errs...)
}

// listen listens in the families that have passive peers.
func (s *Speaker) listen(ctx context.Context) error {
	passive := make(map[netip.Addr]*peer)
	var at []netip.AddrPort
	for addr, p := range s.peers {
		if !p.Peer.Passive {
			continue
		}
		passive[addr] = p
		all := netip.AddrPortFrom(netip.IPv6Unspecified(), bgp.Port)
		if addr.Is4() {
			all = netip.AddrPortFrom(netip.IPv4Unspecified(), bgp.Port)
		}
		if !slices.Contains(at, all) {
			at = append(at, all)
		}
	}
	s.passive.Store(&passive)
	return s.listener.Set(ctx, at...)
}

// passwords reads the passwords of passive peers. A peer whose password can't be read gets
// a random one, so that it can't connect without any.
func (s *Speaker) passwords() (session.Keys, error) {
	keys := session.Keys{}
	var errs []error
	for addr, p := range *s.passive.Load() {
		if err := keys.Add(session.HostPrefix(addr), p.Peer.Password); err != nil {
			errs = append(errs, fmt.Errorf("peer %s: %w", addr, err))
			keys[session.HostPrefix(addr)] = rand.Text()
			p.passwordFailed(err)
		}
	}
	return keys, errors.Join(errs...)
}

// accept hands a connection to its peer.
func (s *Speaker) accept(conn session.Conn) {
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
	p := (*s.passive.Load())[from]
	if p == nil {
		s.log.Debug("connection refused: no passive peer has this address", "address", from)
		conn.Close()
		return
	}
	p.Accept(conn)
}

// Set makes routes, which have different prefixes, all that is announced. Changes
// are queued for the peers; none is waited for. No session begins before the first
// Set.
func (s *Speaker) Set(routes []bgp.Route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes, s.set = slices.Clone(routes), true
	var errs []error
	for _, p := range s.peers {
		errs = append(errs, p.set(s.routes))
	}
	return errors.Join(errs...)
}

// Peers returns the states of all peers, by address.
func (s *Speaker) Peers() []bgp.PeerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]bgp.PeerState, 0, len(s.peers))
	for _, p := range s.peers {
		state := p.State()
		s.bfd.Describe(&state)
		states = append(states, state)
	}
	slices.SortFunc(states, func(a, b bgp.PeerState) int { return a.Address.Compare(b.Address) })
	return states
}

// watch updates the peers that BFD watches. Those whose BGP session is established
// already start at once.
func (s *Speaker) watch() {
	var watched []bfd.Peer
	for _, p := range s.peers {
		if p.Peer.BFD != nil {
			watched = append(watched, bfd.Of(&p.Peer))
		}
	}
	s.bfd.Set(watched)
	for addr, p := range s.peers {
		if p.State().State == bgp.Established {
			s.bfd.Begin(addr)
		}
	}
}

// bfdChanged is called for each change of a BFD session.
func (s *Speaker) bfdChanged(event bfd.Event) {
	s.mu.Lock()
	p := s.peers[event.Peer]
	s.mu.Unlock()
	if p == nil {
		return
	}
	if event.New == bgp.BFDUp {
		s.log.Info("bfd session up", "peer", event.Peer)
	} else if event.Old == bgp.BFDUp {
		s.log.Warn("bfd session down", "peer", event.Peer, "reason", event.Diagnostic)
	}
	p.BFDChanged(event)
}

// Close withdraws all routes, waits until the withdrawals are sent or ctx ends, and
// ends the sessions with a notification. Closing twice is allowed.
func (s *Speaker) Close(ctx context.Context) error {
	return s.stop(func(p *peer) error { return p.leave(ctx) }, s.bfd.Close)
}

// Abandon ends the sessions without a notification: peers with graceful restart keep
// the routes until the restart time is over, or until the next agent has announced
// its own. BFD sends nothing either: a router that saw BFD go down before its BGP
// session would remove the routes.
func (s *Speaker) Abandon() {
	_ = s.stop(func(p *peer) error { p.Stop(session.Notification{}); return nil }, s.bfd.Abandon) // which has no errors
}

// stop ends all peers in parallel, and then BFD and the listener.
func (s *Speaker) stop(end func(*peer) error, stopBFD func()) error {
	s.mu.Lock()
	peers := s.peers
	s.peers = nil
	s.mu.Unlock()
	if peers == nil {
		return nil
	}
	var stopping sync.WaitGroup
	errs := make(chan error, len(peers))
	for _, p := range peers {
		stopping.Go(func() { errs <- end(p) })
	}
	stopping.Wait()
	close(errs)
	s.listener.Close()
	stopBFD()
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}
