// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"container/heap"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Manager keeps a session with each peer. Its methods may be called from several
// goroutines.
//
// Locks: mu, then a listener's, then the messenger's.
type Manager struct {
	log  *slog.Logger
	news *messenger
	work sync.WaitGroup
	late sync.Once // listener.late

	mu        sync.Mutex
	listeners map[link]*listener
	peers     map[netip.Addr]Peer
}

// New returns a Manager without peers. onChange hears of every change of a
// session's state, one after the other; it may call the Manager's methods but
// Close, and may take its time: sessions don't wait for it. Changes that Set and
// Close make are not told. The Manager is to be closed.
func New(log *slog.Logger, onChange func(Event)) *Manager {
	m := &Manager{
		log: log, news: newMessenger(log, onChange),
		listeners: map[link]*listener{}, peers: map[netip.Addr]Peer{},
	}
	m.work.Go(m.news.run)
	return m
}

// Set says who is watched from now on. New sessions listen until Begin; those with
// peers that are as they were go on, those of which only interval or multiplier are
// new agree upon them; those with peers that are gone tell them so. An error is of
// the peers alone, and changes nothing: what the kernel refuses is in State's
// reasons, and tried again.
func (m *Manager) Set(peers []Peer) error {
	wanted, err := index(peers)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for address, old := range m.peers {
		if p, ok := wanted[address]; !ok || p.Local != old.Local || p.Multihop != old.Multihop {
			m.listeners[linkOf(&old)].leave(address)
			delete(m.peers, address)
		}
	}
	for address, p := range wanted {
		switch old, ok := m.peers[address]; {
		case !ok:
			m.watch(p)
		case p != old:
			m.listeners[linkOf(&p)].change(p)
		}
		m.peers[address] = p
	}
	return nil
}

// watch begins a session.
func (m *Manager) watch(p Peer) {
	l, ok := m.listeners[linkOf(&p)]
	if !ok {
		l = newListener(linkOf(&p), m.log, &m.late)
		m.listeners[linkOf(&p)] = l
	}
	if l.add(newSession(time.Now(), p, m.discriminator(), rand.Float64, m.news.tell)) {
		m.work.Go(l.run)
	}
}

// discriminator returns one that no session has (RFC 5880 §6.3). Nobody can guess
// it who doesn't see the packets.
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

// Begin lets the session with a peer speak. Until then it only listens, and takes up
// what the peer may have left of a session with a process that died at this address.
// It is called when BGP's session is established: some routers (FRR) make their BFD
// session anew then, and one that was up before would end BGP's with it. To begin
// again does nothing.
func (m *Manager) Begin(peer netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.peers[peer.Unmap()]; ok {
		m.listeners[linkOf(&p)].begin(p.Address)
	}
}

// State returns how the session with a peer is doing; false if there is none.
func (m *Manager) State(peer netip.Addr) (Status, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.peers[peer.Unmap()]
	if !ok {
		return Status{}, false
	}
	return m.listeners[linkOf(&p)].status(p.Address), true
}

// Close leaves all peers, so that they don't take a planned stop for a failure. It
// returns when they know it, or after a second at most. Events that were not told
// yet are dropped.
func (m *Manager) Close() {
	_ = m.Set(nil) // no peers, nothing wrong with them
	m.end()
}

// Abandon is Close without a word: peers miss this end a detection time later, as
// they would one that was killed.
func (m *Manager) Abandon() {
	m.mu.Lock()
	for _, l := range m.listeners {
		l.abandon()
	}
	clear(m.peers)
	m.mu.Unlock()
	m.end()
}

// end waits until nobody works any more.
func (m *Manager) end() {
	m.news.close()
	m.work.Wait()
}

// add takes a new session, and reports whether the listener needs a goroutine
// for it.
func (l *listener) add(s *session) (start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &member{session: s}
	l.peers[s.peer.Address], l.sessions[s.local] = m, m
	heap.Push(&l.queue, m)
	l.wake()
	start, l.running = !l.running, true
	return start
}

// change gives a session other parameters.
func (l *listener) change(p Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.peers[p.Address]
	m.change(p)
	l.requeue(m)
	l.wake()
}

// begin lets a session speak.
func (l *listener) begin(address netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.peers[address]
	m.begin()
	l.requeue(m)
	l.wake()
}

// leave ends a session.
func (l *listener) leave(address netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.peers[address]
	delete(l.peers, address)
	m.disable(time.Now())
	l.requeue(m)
	l.wake()
}

// abandon forgets all sessions.
func (l *listener) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.peers)
	for _, m := range l.sessions {
		l.remove(m)
	}
	l.wake()
}

// wake makes the goroutine look at its sessions.
func (l *listener) wake() {
	if l.waiter != nil {
		l.waiter.wake()
		return
	}
	select {
	case l.retry <- struct{}{}:
	default:
	}
}

func (l *listener) has(discriminator uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.sessions[discriminator]
	return ok
}

func (l *listener) status(address netip.Addr) Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.peers[address].status()
	if l.problem != nil && s.State != up.word() {
		s.Reason = l.problem.Error()
	}
	return s
}
