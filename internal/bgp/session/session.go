// SPDX-License-Identifier: Apache-2.0

// Package session holds BGP sessions (RFC 4271): one each over a connection that its owner has made or accepted.
// Package speaker holds one with each of its peers, package reflector one with each client and router. Messages are
// read and written with the codec of github.com/osrg/gobgp, which no other package imports.
//
// A session announces IPv4 and IPv6 unicast routes (RFC 4760), with 32-bit AS numbers (RFC 6793), several paths to a
// prefix (RFC 7911), IPv6 next hops of IPv4 routes (RFC 8950), graceful restart (RFC 4724) and route refresh (RFC
// 2918). RFC 8538, by which a router would keep the routes of a balancer whose hold timer expired, is not offered:
// such a balancer may be dead.
//
// Two goroutines serve a session. One reads; its deadline is the hold timer. The other one writes all that has
// changed since it last did, so a change never waits for a peer that doesn't read.
package session

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/wait"
)

// Options configure a session.
type Options struct {
	Local bgp.Local
	Peer  bgp.Peer
	// Restarted marks the first session since this process started (RFC 4724 §3).
	Restarted bool
	// Paths offers the peer several paths to each prefix (RFC 7911).
	Paths bool
	// OnOpen is called when the peer's OPEN has been accepted: paths that are announced in it are those that the
	// session begins with. It may be nil.
	OnOpen func(*Session)
	// OnUpdate is called for each UPDATE. A Notification that isn't zero ends the session. If it is nil, UPDATEs are
	// discarded unread: a router may have all routes of the Internet.
	OnUpdate func(*Session, *Update) Notification
}

// Session is a session with a peer over one connection.
type Session struct {
	o    Options
	conn Conn
	in   *bufio.Reader
	out  *adjRIBOut

	established, ended chan struct{}
	status             wait.Value[Status]
	agreed             negotiated // set once, before OnOpen is called
	// deadline is when the peer has been silent for too long; the zero Time for never. It is late once it has been
	// postponed by holdGrace.
	deadline time.Time
	late     bool
	// writing is held while a message is written; cut is set if one was written in part.
	writing sync.Mutex
	cut     bool

	messagesReceived, messagesSent, updatesReceived, updatesSent atomic.Uint64
}

// Status is how a session is.
type Status struct {
	State bgp.SessionState
	// Since is when the session was established, or zero.
	Since time.Time
	// Open is the peer's OPEN; nil before it has been accepted.
	Open *Open
	// Reason is why the session ended, for an operator. Lost is set if the connection was lost, without a notification
	// of either side: the peer may be restarting (RFC 4724 §4.2).
	Reason string
	Lost   bool
}

const (
	// openTimeout is how long the peer may take from the connection to its OPEN, and from there to the session.
	openTimeout = 10 * time.Second
	// closeTimeout bounds how long it may take to read the last message.
	closeTimeout = time.Second
	// holdGrace is for a message that has arrived when the hold timer expires, but wasn't read yet.
	holdGrace = 100 * time.Millisecond
	// refreshInterval is the shortest time between two answers to requests for all routes.
	refreshInterval = time.Second
)

var errEnded = errors.New("session ended")

// Begin begins a session over a connection, which it takes over.
func Begin(conn *Pending, o Options) *Session {
	s := &Session{
		o: o, conn: conn.Conn, out: newAdjRIBOut(),
		in:          bufio.NewReaderSize(io.MultiReader(bytes.NewReader(conn.received), conn.Conn), wire.BGP_MAX_MESSAGE_LENGTH),
		established: make(chan struct{}), ended: make(chan struct{}),
	}
	s.status.Set(Status{State: bgp.OpenSent})
	go s.run()
	return s
}

// run serves the session until it ends.
func (s *Session) run() {
	var writer sync.WaitGroup
	defer close(s.ended)
	defer writer.Wait()
	defer close(s.out.closed)
	defer s.conn.Close()
	message, err := s.open()
	if err == nil {
		err = s.send(message)
	}
	s.deadline = time.Now().Add(openTimeout)
	for err == nil {
		if message, err = s.next(); err == nil {
			err = s.handle(message, &writer)
		}
	}
	if n, ok := errors.AsType[Notification](err); ok {
		s.setReason(s.describeSent(n))
		s.write(n)
		return
	}
	if !errors.Is(err, errEnded) {
		s.status.Modify(func(status *Status) { status.Lost = status.Reason == "" })
	}
	s.setReason(connectionError(err))
}

// next reads a message. It is an error if the hold timer expires (RFC 4271 §6.5).
func (s *Session) next() ([]byte, error) {
	_ = s.conn.SetReadDeadline(s.deadline) // then reading fails
	message, err := readMessage(s.in)
	if errors.Is(err, os.ErrDeadlineExceeded) && len(message) == 0 && !s.late {
		s.deadline, s.late = time.Now().Add(holdGrace), true
		return s.next()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, Notification{Code: wire.BGP_ERROR_HOLD_TIMER_EXPIRED}
	}
	return message, err
}

// handle handles a message according to the session's state (RFC 4271 §8.2.2).
func (s *Session) handle(message []byte, writer *sync.WaitGroup) error {
	s.messagesReceived.Add(1)
	state, kind := s.Status().State, message[18]
	if kind == wire.BGP_MSG_UPDATE {
		s.updatesReceived.Add(1)
		if state != bgp.Established {
			return outOfOrder
		}
		s.resetHoldTimer()
		return s.receiveUpdate(message)
	}
	m, err := parse(message, nil)
	if fault, ok := errors.AsType[*wire.MessageError](err); ok {
		return Notification{Code: fault.TypeCode, Subcode: fault.SubTypeCode}
	}
	if err != nil {
		return badLength
	}
	switch body := m.Body.(type) {
	case *wire.BGPNotification:
		s.setReason(s.describeReceived(readNotification(body)))
		return errEnded
	case *wire.BGPOpen:
		if state == bgp.OpenSent {
			return s.accept(body, writer)
		}
		return outOfOrder
	case *wire.BGPKeepAlive:
		if state == bgp.OpenSent {
			return outOfOrder
		}
		s.resetHoldTimer()
		if state == bgp.OpenConfirm {
			s.status.Modify(func(status *Status) { status.State, status.Since = bgp.Established, time.Now() })
			close(s.established)
		}
	case *wire.BGPRouteRefresh:
		if state != bgp.Established {
			return outOfOrder
		}
		s.out.refresh(wire.NewFamily(body.AFI, body.SAFI))
	}
	return nil
}

// accept checks the peer's OPEN (RFC 4271 §6.2) and confirms it.
func (s *Session) accept(body *wire.BGPOpen, writer *sync.WaitGroup) error {
	open := readOpen(body)
	s.status.Modify(func(status *Status) { status.Open = open }) // which the reason of a refusal names
	if _, err := wire.ValidateOpenMsg(body, s.o.Peer.ASN, s.o.Local.ASN, s.o.Local.RouterID); err != nil {
		n := badOpen
		if fault, ok := errors.AsType[*wire.MessageError](err); ok {
			n.Subcode = fault.SubTypeCode
		}
		return n
	}
	unknown := func(p wire.OptionParameterInterface) bool {
		_, known := p.(*wire.OptionParameterCapability)
		return !known
	}
	if slices.ContainsFunc(body.OptParams, unknown) {
		return badParameter
	}
	s.agreed = s.o.negotiate(open)
	if s.o.OnOpen != nil {
		s.o.OnOpen(s)
	}
	s.status.Modify(func(status *Status) { status.State = bgp.OpenConfirm })
	s.deadline, s.late = time.Now().Add(openTimeout), false
	err := s.send(keepalive)
	writer.Go(s.writeAll)
	return err
}

func (s *Session) resetHoldTimer() {
	s.deadline, s.late = time.Time{}, false
	if hold := s.agreed.holdTime; hold > 0 {
		s.deadline = time.Now().Add(hold)
	}
}

// writeAll writes KEEPALIVEs, and all changes of the announced paths once the session is established, until it ends. An
// error ends the reader, too: at once if the peer has closed the connection, as soon as it has read the peer's reason.
func (s *Session) writeAll() {
	var alive <-chan time.Time
	if hold := s.agreed.holdTime; hold > 0 {
		ticker := time.NewTicker(hold / 3) // RFC 4271 §4.4
		defer ticker.Stop()
		alive = ticker.C
	}
	established, changed := s.established, (chan struct{})(nil)
	for {
		var err error
		select {
		case <-s.out.closed:
			return
		case <-established:
			established, changed = nil, s.out.changed
		case <-alive:
			err = s.send(keepalive)
		case <-changed:
			err = s.update()
		}
		if err != nil {
			time.AfterFunc(closeTimeout, func() { s.conn.Close() })
			return
		}
	}
}

// update writes the changes of the announced paths.
func (s *Session) update() error {
	for _, m := range s.out.take(&s.agreed) {
		if err := s.send(m); err != nil {
			return err
		}
	}
	s.out.written()
	return nil
}

// send writes a message.
func (s *Session) send(message []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.cut {
		return errEnded
	}
	if _, err := s.conn.Write(message); err != nil {
		s.cut = true
		return err
	}
	s.messagesSent.Add(1) // the kernel has accepted it
	if message[18] == wire.BGP_MSG_UPDATE {
		s.updatesSent.Add(1)
	}
	return nil
}

// write writes the last message, and closes this end.
func (s *Session) write(n Notification) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(closeTimeout)) // which also ends a message that the peer doesn't read
	if n.Code != 0 {
		_ = s.send(n.message()) // the connection is closed anyway
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.cut = true
	_ = s.conn.CloseWrite() // fails if the peer has closed already
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
	s.setReason(n.Error())
	s.write(n)
	select {
	case <-s.ended:
	case <-time.After(closeTimeout):
	}
	s.conn.Close()
}

// Drop ends the session without a notification, as if the process had died: a peer
// with graceful restart keeps the routes.
func (s *Session) Drop(reason string) {
	s.setReason(reason)
	s.conn.Close()
}

// Replaced is why a session ends for a new connection of the peer.
const Replaced = "replaced by a new connection of the peer"

// probeTimeout is how long a peer may take to reset a connection that it has lost.
const probeTimeout = time.Second

// SupersededBy reports whether another connection of the peer replaces this one. Both come from the
// peer, so that RFC 4271 §6.8 doesn't compare identifiers: the later one counts while the
// session isn't established. An established session ends for a peer with graceful restart
// (RFC 4724 §5), otherwise only if the peer has lost its connection: it resets that for a KEEPALIVE.
func (s *Session) SupersededBy(conn *Pending) bool {
	status := s.Status()
	if status.State != bgp.Established {
		return true
	}
	open := status.Open
	same := conn.Open.ASN == open.ASN && conn.Open.RouterID == open.RouterID
	if same && s.agreed.gracefulRestart {
		return true
	}
	go func() { _ = s.send(keepalive) }() // an error ends the session by itself
	select {
	case <-s.ended:
		return true
	case <-time.After(probeTimeout):
		return false
	}
}

// setReason sets why the session ends; the first reason counts.
func (s *Session) setReason(reason string) {
	s.status.Modify(func(status *Status) { status.Reason = cmp.Or(status.Reason, reason) })
}

// Status is how the session is.
func (s *Session) Status() Status { return s.status.Get() }

// Conclude adds the session, which ends, to the state of its peer, and reports whether it was established.
func (s *Session) Conclude(state *bgp.PeerState) (was bool) {
	s.count(state)
	if was = s.Status().State == bgp.Established; was {
		state.Since = time.Now()
		state.Flaps++
	}
	return was
}

// count adds the messages so far to the counters of a state.
func (s *Session) count(state *bgp.PeerState) {
	state.MessagesReceived += s.messagesReceived.Load()
	state.MessagesSent += s.messagesSent.Load()
	state.UpdatesReceived += s.updatesReceived.Load()
	state.UpdatesSent += s.updatesSent.Load()
}

// Describe adds the current session to the state of its peer.
func (s *Session) Describe(state *bgp.PeerState) {
	s.count(state)
	status := s.Status()
	state.State = status.State
	if status.State != bgp.Established {
		return
	}
	state.Since, state.Reason = status.Since, ""
	state.LocalAddress, state.RouterID = s.LocalAddress(), status.Open.RouterID
	state.HoldTime, state.GracefulRestart = s.agreed.holdTime, s.agreed.gracefulRestart
	state.RoutesAnnounced = uint64(s.out.state.Get().paths)
}

// AwaitWithdrawn waits until the peer has been sent the withdrawals of all routes, or
// the session or ctx ends.
func (s *Session) AwaitWithdrawn(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.ended:
			cancel(errEnded)
		case <-ctx.Done():
		}
	}()
	_, err := s.out.state.Await(ctx, func(o outState) bool { return o.paths == 0 && o.current })
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// LocalAddress is this end of the peer's connection.
func (s *Session) LocalAddress() netip.Addr {
	addr, _ := s.conn.LocalAddr().(*net.TCPAddr)
	return addr.AddrPort().Addr().Unmap()
}

// Pending is a connection whose OPEN has been read, before its session begins.
type Pending struct {
	Conn
	// Open has the contents of the OPEN; zero if another message has come.
	Open     Open
	received []byte
}

// Refuse closes the connection with a notification.
func (p *Pending) Refuse(n Notification) {
	_ = p.SetWriteDeadline(time.Now().Add(closeTimeout)) // then the next line fails
	_, _ = p.Write(n.message())                          // the connection is closed anyway
	p.Close()
}

// ReadOpen waits for the first message on a connection: several peers may have one
// address, and only the OPEN identifies them. Anything else is left to the session,
// which replies to it.
func ReadOpen(conn Conn) (*Pending, error) {
	_ = conn.SetReadDeadline(time.Now().Add(openTimeout)) // then the next line fails
	message, err := readMessage(conn)
	if _, malformed := errors.AsType[Notification](err); err != nil && !malformed {
		return nil, fmt.Errorf("no OPEN received: %w", err)
	}
	p := &Pending{Conn: conn, received: message}
	if m, err := parse(message, nil); err == nil {
		if open, ok := m.Body.(*wire.BGPOpen); ok {
			p.Open = *readOpen(open)
		}
	}
	return p, conn.SetReadDeadline(time.Time{})
}
