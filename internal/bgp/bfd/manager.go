// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/wait"
)

// Manager holds a session with each peer. Its methods may be called concurrently.
//
// Lock order: mu, a listener's, the lock of events.
type Manager struct {
	log      *slog.Logger
	onChange func(Event)
	events   wait.Value[[]Event] // for onChange, as sessions must not wait
	work     sync.WaitGroup
	ctx      context.Context // of work
	cancel   context.CancelFunc
	warnLate sync.Once // listener.warnLate

	mu        sync.Mutex
	listeners map[link]*listener
	peers     map[netip.Addr]*watchedPeer
}

// watchedPeer is a peer with the link that its session is on.
type watchedPeer struct {
	Peer
	link link
}

// New returns a Manager without peers. onChange is called for each change of a
// session's state, one after the other, but not for those that Set and Close make. It
// may call the Manager's methods except Close, and sessions don't wait for it. Close
// or Abandon ends the Manager.
func New(log *slog.Logger, onChange func(Event)) *Manager {
	m := &Manager{
		log: log, onChange: onChange, listeners: map[link]*listener{}, peers: map[netip.Addr]*watchedPeer{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.work.Go(m.deliver)
	return m
}

// deliver calls onChange.
func (m *Manager) deliver() {
	for {
		events, err := m.events.Await(m.ctx, func(queued []Event) bool { return len(queued) > 0 })
		if err != nil {
			return
		}
		m.events.Modify(func(queued *[]Event) { *queued = (*queued)[len(events):] })
		for _, e := range events {
			if m.ctx.Err() != nil {
				return
			}
			m.log.Debug("bfd session changed", slog.Any("peer", e.Peer), slog.Any("from", e.Old),
				slog.Any("to", e.New), slog.String("diagnostic", e.Diagnostic.String()))
			m.onChange(e)
		}
	}
}

// notify queues an event. It never blocks.
func (m *Manager) notify(e Event) {
	m.events.Modify(func(queued *[]Event) { *queued = append(*queued, e) })
}

// Set replaces the set of peers; those with one address are one. New sessions are
// passive until Begin; unchanged ones continue; sessions of removed and changed peers
// go administratively down. Sockets that the kernel refuses are retried, with the
// error in the sessions' reasons.
func (m *Manager) Set(peers []Peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := make(map[netip.Addr]Peer, len(peers))
	for _, p := range peers {
		wanted[p.Address] = p
	}
	for address, old := range m.peers {
		if wanted[address] != old.Peer {
			m.listeners[old.link].disable(address)
			delete(m.peers, address)
		}
	}
	for address, p := range wanted {
		if _, ok := m.peers[address]; !ok {
			w := &watchedPeer{Peer: p}
			w.link = w.currentLink()
			m.peers[address] = w
			m.watch(w)
		}
	}
}

// watch adds a session.
func (m *Manager) watch(p *watchedPeer) {
	l, ok := m.listeners[p.link]
	if !ok {
		l = newListener(p.link, m.log, &m.warnLate)
		m.listeners[p.link] = l
	}
	if l.add(newSession(time.Now(), p.Peer, m.discriminator(), rand.Float64, m.notify)) {
		m.work.Go(l.run)
	}
}

// currentLink is the link that the session belongs on now. Without a route it is the
// former one.
func (p *watchedPeer) currentLink() link {
	l := link{multihop: p.link.multihop, v6: p.Address.Is6()}
	if p.Path != bgp.ByRoute {
		l.multihop = p.Path == bgp.Multihop
	} else if route, err := p.route(); err == nil {
		l.multihop = route.Gw != nil || len(route.MultiPath) > 0
	}
	return l
}

// discriminator returns a random one that no session has (RFC 5880 §6.3), so that it
// can't be guessed.
func (m *Manager) discriminator() uint32 {
	for {
		d, free := rand.Uint32(), true
		for _, l := range m.listeners {
			free = free && !l.has(d)
		}
		if d != 0 && free {
			return d
		}
	}
}

// Begin lets the session with a peer send. Until then it is passive, but resumes a
// session that the peer still has with a former process at this address. It is called
// when BGP's session is established: some routers (FRR) recreate their BFD session
// then, and one that was up before would end BGP's with it. Further calls have no
// effect.
func (m *Manager) Begin(peer netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.peers[peer]; ok {
		m.listeners[p.link].begin(peer)
	}
}

// Established is Begin for a peer that BFD watched before its BGP session was established:
// the route may have come later, or changed. A session that isn't up moves to the link that
// the route shows now.
func (m *Manager) Established(peer netip.Addr) {
	m.mu.Lock()
	if p, ok := m.peers[peer]; ok && !m.listeners[p.link].isUp(peer) {
		if now := p.currentLink(); now != p.link {
			m.listeners[p.link].disable(peer)
			p.link = now
			m.watch(p)
		}
	}
	m.mu.Unlock()
	m.Begin(peer)
}

// Describe sets the fields of a peer's session, if there is one.
func (m *Manager) Describe(state *bgp.PeerState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.peers[state.Address]; ok {
		m.listeners[p.link].describe(state)
	}
}

// Close takes all sessions administratively down, so that peers don't take a planned
// stop for a failure. It returns when they have confirmed it, after a second at most.
// Pending events are dropped.
func (m *Manager) Close() {
	m.cancel()
	m.Set(nil)
	m.work.Wait()
}

// Abandon ends all sessions without sending anything: peers detect it after the
// detection time, as if the process had been killed.
func (m *Manager) Abandon() {
	m.cancel()
	m.mu.Lock()
	for _, l := range m.listeners {
		l.abandon()
	}
	clear(m.peers)
	m.mu.Unlock()
	m.work.Wait()
}
