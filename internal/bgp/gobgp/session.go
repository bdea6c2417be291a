// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

// Handshake is how a session begins.
type Handshake struct {
	// Restarted says that this is the peer's first session since the agent started.
	Restarted bool
	// Opened is called, while the library waits, when the peer has said what it can
	// do: routes that are announced in it are those that the session begins with.
	Opened func(*Session)
}

// Session is a session with the peer over one connection.
type Session struct {
	conn *conn
}

// newSession makes what the library is to have for tcp.
func newSession(tcp *net.TCPConn, local bgp.Local, peer bgp.Peer, handshake Handshake) *Session {
	s := &Session{}
	s.conn = &conn{
		TCPConn: tcp, in: bufio.NewReaderSize(tcp, maxMessage), refreshed: make(map[wire.Family]time.Time),
		local: local, peer: peer, restarted: handshake.Restarted, opened: func() { handshake.Opened(s) },
		established: make(chan struct{}), ended: make(chan struct{}), changed: make(chan struct{}, 1),
		told: make(map[netip.Prefix]struct{}),
	}
	return s
}

// Established is closed when the session is established.
func (s *Session) Established() <-chan struct{} { return s.conn.established }

// Ended is closed when it has ended.
func (s *Session) Ended() <-chan struct{} { return s.conn.ended }

// Reason is why it ended, in words for an operator.
func (s *Session) Reason() string {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.conn.reason
}

// State is what the session is at.
func (s *Session) State() bgp.SessionState {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	switch s.conn.phase {
	case opening:
		return bgp.OpenSent
	case opened, confirmed:
		return bgp.OpenConfirm
	default:
		return bgp.Established
	}
}

// Open is what the peer said of itself; nil before it did.
func (s *Session) Open() *Open {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.conn.open
}

// Counters are the messages so far.
func (s *Session) Counters() Counters {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.conn.counters
}

// Announced is how many routes the peer has been told.
func (s *Session) Announced() int {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return len(s.conn.told)
}

// Silent waits until the peer has been told that no route is left, or until the
// session or ctx ends.
func (s *Session) Silent(ctx context.Context) error {
	for s.Announced() > 0 {
		select {
		case <-s.conn.changed:
		case <-s.conn.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// LocalAddress is this end of the connection.
func (s *Session) LocalAddress() netip.Addr {
	addr, _ := s.conn.LocalAddr().(*net.TCPAddr)
	return addr.AddrPort().Addr().Unmap()
}

// End ends the session with a notification.
func (s *Session) End(n Notification) {
	s.conn.because(n.String())
	s.conn.notify(n)
}

// Drop ends the session without a word, as if the agent had died: a peer with
// graceful restart keeps the routes.
func (s *Session) Drop(reason string) {
	s.conn.because(reason)
	s.conn.Close()
}
