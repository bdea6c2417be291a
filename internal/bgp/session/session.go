// SPDX-License-Identifier: Apache-2.0

// Package session holds BGP sessions (RFC 4271) with github.com/osrg/gobgp, which no
// other package imports. Package speaker holds one with each of its peers, package
// reflector one with each client and router.
//
// The library keeps the protocol's state and tables. The connections to peers are
// made here, as the library dials seconds late, gives no reason when it can't, and
// reads no passwords of address ranges. A Session relays between a peer's connection
// and one to the library on the loopback interface. It makes changes that the
// library has no option for, and protects the library from peers' messages.
package session

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/wait"
)

// Session is a session with a peer over one connection.
type Session struct {
	local         bgp.Local
	config        bgp.Peer
	peer, library *net.TCPConn
	in            *bufio.Reader // of peer
	// restarted and opened are arguments of Peer.Begin and NewPeer; opened may be
	// nil.
	restarted bool
	opened    func(*Session)
	// key is the library's of the peer: a new one, unless the peer outlives the session.
	key netip.Addr
	// client passes the routes of UPDATEs on to the library, as reflection says, and records
	// them in adjRIBIn. Routes of other peers are discarded: a balancer and a reflector's
	// routers could have all of the Internet's.
	client     bool
	reflection atomic.Pointer[bgp.Reflection]
	// passing is held while routes are passed on.
	passing sync.Mutex
	updates *updates
	// refreshed4 and refreshed6 are when the peer last requested the routes again.
	refreshed4, refreshed6 time.Time

	established, ended chan struct{}
	status             wait.Value[Status]
	// announced is how many paths are announced to the peer.
	announced wait.Value[int]
	// confirmed is set when a KEEPALIVE has followed the OPEN.
	confirmed bool

	// Counters of messages.
	messagesReceived, messagesSent, updatesReceived, updatesSent atomic.Uint64

	mu sync.Mutex
	// adjRIBIn has a client's routes, attributes the bytes of their attributes.
	adjRIBIn   map[netip.Prefix]ReceivedRoute
	attributes int
}

// Status is how a session is.
type Status struct {
	// State is established as soon as the library sends updates; Since is when, or zero.
	State bgp.SessionState
	Since time.Time
	// Open is the peer's OPEN; nil before it has arrived.
	Open *Open
	// Reason is why the session ended, for an operator. Refused is set if this side ended
	// it with a notification of the peer's error.
	Reason  string
	Refused bool
}

// refreshInterval is the shortest time between two answers to a peer's route refresh
// requests for one family.
const refreshInterval = time.Second

// closeTimeout bounds how long a peer may take to read the last message, libraryTimeout
// how long the library may take to close its end: it has then stopped accepting connections.
const (
	closeTimeout   = time.Second
	libraryTimeout = 10 * time.Second
)

var (
	// errEnded is that the session was ended from here, or by the library.
	errEnded     = errors.New("session ended")
	errMalformed = errors.New("malformed message header")
)

func newSession(conn *Pending, local bgp.Local, config bgp.Peer) *Session {
	s := &Session{
		local: local, config: config, peer: conn.TCPConn, key: newKey(routerKeys),
		in:          bufio.NewReader(io.MultiReader(bytes.NewReader(conn.received), conn)),
		established: make(chan struct{}), ended: make(chan struct{}),
		updates: newUpdates(), adjRIBIn: make(map[netip.Prefix]ReceivedRoute),
	}
	s.status.Set(Status{State: bgp.OpenSent})
	return s
}

// relay passes messages on until both connections are closed.
func (s *Session) relay() {
	var work sync.WaitGroup
	work.Go(func() {
		err := s.receive(s.library)
		s.setReason(connectionError(err))
		s.stopLibrary()
		_ = s.peer.SetWriteDeadline(time.Now().Add(closeTimeout))
	})
	work.Go(func() {
		err := s.send()
		s.setReason(connectionError(err))
		s.peer.Close()
		s.library.Close()
	})
	work.Wait()
}

// stopLibrary ends the library's session, which closes its end after its last message.
// relay waits for that: the library must not stop while it takes a connection.
func (s *Session) stopLibrary() {
	_ = s.library.CloseWrite()
	_ = s.library.SetReadDeadline(time.Now().Add(libraryTimeout))
}

// receive relays the peer's messages to the library.
func (s *Session) receive(library io.Writer) error {
	for {
		message, err := s.next()
		if err != nil {
			return err
		}
		if _, err := library.Write(message); err != nil {
			return errEnded
		}
	}
}

// next returns the peer's next message as the library gets it.
func (s *Session) next() ([]byte, error) {
	message, err := readMessage(s.in)
	if errors.Is(err, errMalformed) {
		return nil, s.refuse(malformed)
	}
	if err != nil {
		return nil, err
	}
	update := message[18] == wire.BGP_MSG_UPDATE
	s.messagesReceived.Add(1)
	if update {
		s.updatesReceived.Add(1)
	}
	switch {
	case update && !s.confirmed:
		return nil, s.refuse(outOfOrder)
	case update && !s.client:
		return keepalive, nil // it resets the hold timer, too (RFC 4271 §8.2.2)
	}
	return s.inspect(message)
}

// inspect handles a message before the library does, and returns it as the library gets it.
func (s *Session) inspect(message []byte) ([]byte, error) {
	m, err := parse(message, s.options(false))
	if fault, ok := errors.AsType[*wire.MessageError](err); ok {
		n := Notification{Code: fault.TypeCode, Subcode: fault.SubTypeCode}
		if message[18] == wire.BGP_MSG_UPDATE { // of which the library may use a part (RFC 7606)
			return nil, s.refuse(n)
		}
		s.setReason(badMessage(n))
		return message, nil // to which the library replies
	}
	if err != nil {
		return nil, s.refuse(malformed)
	}
	switch body := m.Body.(type) {
	case *wire.BGPOpen:
		return s.receivedOpen(body, message)
	case *wire.BGPKeepAlive:
		s.confirmed = s.Status().State != bgp.OpenSent
	case *wire.BGPNotification:
		s.setReason(s.describeReceived(readNotification(body)))
	case *wire.BGPRouteRefresh:
		s.pace(wire.NewFamily(body.AFI, body.SAFI))
	case *wire.BGPUpdate:
		if end, _ := body.IsEndOfRib(); !end {
			return nil, s.receivedUpdate(body)
		}
	}
	return message, nil
}

// receivedOpen handles a valid OPEN, and returns it as the library gets it.
func (s *Session) receivedOpen(body *wire.BGPOpen, message []byte) ([]byte, error) {
	open := readOpen(body)
	if s.Status().State != bgp.OpenSent {
		return nil, s.refuse(outOfOrder)
	}
	if s.updates.repeat != nil {
		s.updates.negotiate(body, open.GracefulRestart && s.config.RestartTime > 0)
	}
	s.status.Modify(func(status *Status) { status.State, status.Open = bgp.OpenConfirm, open })
	if s.config.HoldTime == 0 { // which the library doesn't have
		binary.BigEndian.PutUint16(message[headerSize+3:], 0)
	}
	if s.opened != nil && open.ASN == s.config.ASN {
		s.opened(s)
	}
	if s.updates.repeat != nil && !open.GracefulRestart {
		message = addGracefulRestart(message)
	}
	return message, nil
}

// pace delays repeated route refresh requests.
func (s *Session) pace(family wire.Family) {
	last := &s.refreshed4
	if family == wire.RF_IPv6_UC {
		last = &s.refreshed6
	}
	time.Sleep(time.Until(last.Add(refreshInterval)))
	*last = time.Now()
}

// send relays the library's messages to the peer. If the peer can't be reached,
// only the library's notification is looked for, which is why the session ends.
func (s *Session) send() (failed error) {
	in := bufio.NewReader(s.library)
	for {
		message, err := readMessage(in)
		if err != nil {
			return cmp.Or(failed, errEnded)
		}
		out, err := s.rewrite(message)
		if failed != nil {
			continue
		}
		if err == nil {
			_, err = s.peer.Write(out)
		}
		if failed = err; failed != nil {
			s.stopLibrary()
			continue
		}
		s.messagesSent.Add(1) // which the kernel has accepted
		if message[18] == wire.BGP_MSG_UPDATE {
			s.updatesSent.Add(1)
			s.announced.Set(len(s.updates.assigned))
		}
	}
}

// rewrite returns the message that replaces the library's.
func (s *Session) rewrite(message []byte) ([]byte, error) {
	switch kind := message[18]; {
	case kind == wire.BGP_MSG_OPEN:
		return rewriteOpen(message, s.restarted, &s.config)
	case kind == wire.BGP_MSG_UPDATE:
		out, err := s.updates.rewrite(message, s.options(true))
		return slices.Concat(out...), err
	case kind == wire.BGP_MSG_NOTIFICATION && len(message) >= headerSize+2:
		s.setRefused(s.describeSent(Notification{Code: message[headerSize], Subcode: message[headerSize+1]}))
	}
	return message, nil
}

// options are how messages with the peer are parsed; outgoing ones may have path
// identifiers.
func (s *Session) options(outgoing bool) *wire.MarshallingOption {
	open := s.Status().Open
	o := &wire.MarshallingOption{Use2ByteAS: open != nil && !open.longASN, ExtendedMessage: true}
	if outgoing {
		o.AddPath = s.updates.families
	}
	return o
}

// establish marks the session as established.
func (s *Session) establish() {
	s.status.Modify(func(status *Status) { status.State, status.Since = bgp.Established, time.Now() })
	close(s.established)
}

// Established is closed when the session is established.
func (s *Session) Established() <-chan struct{} { return s.established }

// Ended is closed when the session has ended.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// End ends the session with a notification, or with the zero Notification without one, so
// that a peer with graceful restart keeps the routes. It waits up to a second until the
// peer has closed its end, too: until it has read the notification, it may take a new
// connection for a collision with this one (RFC 4271 §6.8).
func (s *Session) End(n Notification) {
	s.setReason(n.String())
	write(s.peer, n)
	_ = s.peer.CloseWrite() // fails if the peer has closed already
	select {
	case <-s.ended:
	case <-time.After(closeTimeout):
	}
	s.close()
}

// Drop ends the session without a notification, as if the process had died: a peer
// with graceful restart keeps the routes.
func (s *Session) Drop(reason string) {
	s.setReason(reason)
	s.close()
}

// refuse ends the session with a notification of the peer's fault.
func (s *Session) refuse(n Notification) error {
	s.setRefused(badMessage(n))
	write(s.peer, n)
	s.close()
	return errEnded
}

// write writes the last message to a peer.
func write(peer *net.TCPConn, n Notification) {
	if message, err := n.message(); n.Code != 0 && err == nil {
		_ = peer.SetWriteDeadline(time.Now().Add(closeTimeout)) // then the next line fails
		_, _ = peer.Write(message)                              // the connection is closed anyway
	}
}

// Probe sends the peer of an established session a KEEPALIVE: a peer that has lost the
// connection, as after its restart, resets it.
func (s *Session) Probe() {
	_, _ = s.peer.Write(keepalive) // an error ends the session by itself
}

func (s *Session) close() {
	s.peer.Close()
	if s.library != nil {
		s.stopLibrary()
	}
}

// setReason sets why the session ends; the first reason counts.
func (s *Session) setReason(reason string) {
	s.status.Modify(func(status *Status) { status.Reason = cmp.Or(status.Reason, reason) })
}

// setRefused is setReason for a session that this side ends by a notification.
func (s *Session) setRefused(reason string) {
	s.setReason(reason)
	s.status.Modify(func(status *Status) { status.Refused = true })
}

// Status is how the session is.
func (s *Session) Status() Status { return s.status.Get() }

// Count adds the messages so far to the counters of a state.
func (s *Session) Count(state *bgp.PeerState) {
	state.MessagesReceived += s.messagesReceived.Load()
	state.MessagesSent += s.messagesSent.Load()
	state.UpdatesReceived += s.updatesReceived.Load()
	state.UpdatesSent += s.updatesSent.Load()
}

// Describe sets the fields of an established session, but not its counters.
func (s *Session) Describe(state *bgp.PeerState) {
	status := s.Status()
	if status.State != bgp.Established {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	open := status.Open
	state.Since, state.Reason = status.Since, ""
	state.LocalAddress, state.RouterID = s.LocalAddress(), open.RouterID
	state.HoldTime = min(s.config.HoldTime, open.HoldTime)
	state.GracefulRestart = open.GracefulRestart && s.config.RestartTime > 0
	state.RoutesAnnounced, state.RoutesReceived = uint64(s.announced.Get()), uint64(len(s.adjRIBIn))
}

// AwaitWithdrawn waits until the peer has been sent the withdrawals of all routes, or
// the session or ctx ends.
func (s *Session) AwaitWithdrawn(ctx context.Context) error {
	for {
		left, changed := s.announced.Watch()
		if left == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-s.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// LocalAddress is this end of the peer's connection.
func (s *Session) LocalAddress() netip.Addr {
	addr, _ := s.peer.LocalAddr().(*net.TCPAddr)
	return addr.AddrPort().Addr().Unmap()
}

// Pending is a connection whose OPEN has been read, before its session begins.
type Pending struct {
	*net.TCPConn
	// Open has the contents of the OPEN; zero if another message has come.
	Open     Open
	received []byte
}

// Refuse closes the connection with a notification.
func (p *Pending) Refuse(n Notification) {
	write(p.TCPConn, n)
	p.Close()
}

// ReadOpen waits for the first message on a connection: several peers may have one
// address, and only the OPEN identifies them. Anything else is left to the session,
// which replies to it.
func ReadOpen(conn *net.TCPConn, timeout time.Duration) (*Pending, error) {
	_ = conn.SetReadDeadline(time.Now().Add(timeout)) // then the next line fails
	message, err := readMessage(conn)
	if err != nil && !errors.Is(err, errMalformed) {
		return nil, fmt.Errorf("no OPEN received: %w", err)
	}
	p := &Pending{TCPConn: conn, received: message}
	if m, err := parse(message, nil); err == nil {
		if open, ok := m.Body.(*wire.BGPOpen); ok {
			p.Open = *readOpen(open)
		}
	}
	return p, conn.SetReadDeadline(time.Time{})
}
