// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

// conn is a session's connection as the library sees it. It passes on what the
// session lives by and keeps the rest away, so that nothing a peer sends can take
// memory or make the library fall: routes are counted and thrown away, as a
// balancer learns none, and what the library couldn't parse ends the session.
// It also sees what the library doesn't tell: why a session ended, and which
// routes the peer has been told.
//
// One goroutine reads at a time; what follows mu is guarded by it.
type conn struct {
	*net.TCPConn
	in *bufio.Reader
	// ready is what the library has still to read, skip how much of an UPDATE has
	// still to be thrown away.
	ready []byte
	skip  int
	// refreshed is when the peer last asked for a family's routes again.
	refreshed map[wire.Family]time.Time

	local     bgp.Local
	peer      bgp.Peer
	restarted bool
	opened    func() // Handshake.Opened

	established, ended chan struct{}
	over               sync.Once // closes ended
	// changed has an element after routes were announced or withdrawn.
	changed chan struct{}

	mu       sync.Mutex
	phase    phase
	open     *Open
	reason   string
	counters Counters
	told     map[netip.Prefix]struct{}
}

// phase is how far a session has come.
type phase int

const (
	opening     phase = iota // no OPEN has come
	opened                   // OPEN has come, and no KEEPALIVE
	confirmed                // both, which the library may not have noticed
	established              // the library has
)

// Counters count messages of one session.
type Counters struct {
	MessagesReceived, MessagesSent, UpdatesReceived, UpdatesSent uint64
}

// The sizes of RFC 4271 §4.1.
const (
	headerSize = wire.BGP_HEADER_LENGTH
	maxMessage = wire.BGP_MAX_MESSAGE_LENGTH
)

// refreshInterval is the shortest time between two answers to a peer's requests
// for all routes of a family: one that asks faster waits.
const refreshInterval = time.Second

// errEnded is what the library reads from a session that was ended here.
var errEnded = errors.New("session ended")

// Read gives the library the next bytes that it is to see.
func (c *conn) Read(b []byte) (int, error) {
	c.library()
	for len(c.ready) == 0 {
		if err := c.next(); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) { // with which the library stops its readers
				c.because(broken(err))
			}
			return 0, err
		}
	}
	n := copy(b, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// library notices that the library reads on after the KEEPALIVE that confirms the
// session: it does so only once the session is established.
func (c *conn) library() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == confirmed && len(c.ready) == 0 {
		c.phase = established
		close(c.established)
	}
}

// next reads one message. A deadline may stop it anywhere; it goes on there.
func (c *conn) next() error {
	if c.skip > 0 {
		n, err := c.in.Discard(c.skip)
		if c.skip -= n; err != nil {
			return err
		}
		// An UPDATE keeps the session alive as a KEEPALIVE does (RFC 4271 §8.2.2).
		c.ready, err = wire.NewBGPKeepAliveMessage().Serialize()
		return err
	}
	header, err := c.in.Peek(headerSize)
	if err != nil {
		return err
	}
	size, kind := int(binary.BigEndian.Uint16(header[16:])), header[18]
	switch {
	case !bytes.Equal(header[:16], marker) || size <= headerSize && kind != wire.BGP_MSG_KEEPALIVE:
		return c.refuse(malformed)
	case kind == wire.BGP_MSG_UPDATE:
		return c.ignore(size)
	case size < headerSize || size > maxMessage:
		return c.refuse(malformed)
	}
	message, err := c.in.Peek(size)
	if err != nil {
		return err
	}
	c.ready = bytes.Clone(message)
	_, err = c.in.Discard(size)
	return errors.Join(err, c.received(kind))
}

// ignore counts an UPDATE of size bytes and has it thrown away.
func (c *conn) ignore(size int) error {
	if !c.at(established) {
		return c.refuse(outOfOrder)
	}
	c.count(wire.BGP_MSG_UPDATE)
	c.skip = size - headerSize
	_, err := c.in.Discard(headerSize)
	return err
}

// marker begins every message.
var marker = bytes.Repeat([]byte{0xff}, 16)

// received looks at the message in ready before the library does.
func (c *conn) received(kind uint8) error {
	c.count(kind)
	m, err := parse(c.ready, nil)
	if fault, ok := errors.AsType[*wire.MessageError](err); ok { // the library answers it
		c.because(unreadable(Notification{Code: fault.TypeCode, Subcode: fault.SubTypeCode}))
		return nil
	}
	if err != nil {
		return c.refuse(malformed)
	}
	switch body := m.Body.(type) {
	case *wire.BGPOpen:
		return c.receivedOpen(body)
	case *wire.BGPKeepAlive:
		c.advance(opened, confirmed)
	case *wire.BGPNotification:
		c.because(c.said(readNotification(body)))
	case *wire.BGPRouteRefresh:
		c.pace(wire.NewFamily(body.AFI, body.SAFI))
	}
	return nil
}

// receivedOpen tells the session's keeper what the peer can do, before the library
// can announce anything to it.
func (c *conn) receivedOpen(body *wire.BGPOpen) error {
	if !c.at(opening) {
		return c.refuse(outOfOrder)
	}
	open := readOpen(body)
	c.mu.Lock()
	c.open = open
	c.mu.Unlock()
	c.advance(opening, opened)
	if c.peer.HoldTime == 0 {
		binary.BigEndian.PutUint16(c.ready[headerSize+3:], 0)
	}
	if open.ASN == c.peer.ASN {
		c.opened()
	}
	return nil
}

// pace makes a peer wait that asks for the same routes again and again.
func (c *conn) pace(family wire.Family) {
	select {
	case <-time.After(time.Until(c.refreshed[family].Add(refreshInterval))):
	case <-c.ended:
	}
	if len(c.refreshed) > 8 { // more families than there are to ask for
		clear(c.refreshed)
	}
	c.refreshed[family] = time.Now()
}

// Write sends one message of the library's.
func (c *conn) Write(message []byte) (int, error) {
	kind, out := message[18], message
	if kind == wire.BGP_MSG_OPEN {
		var err error
		if out, err = ownOpen(message, c.restarted, c.peer.HoldTime == 0); err != nil {
			return 0, err
		}
	}
	if kind == wire.BGP_MSG_NOTIFICATION && len(message) >= headerSize+2 {
		c.because(c.answered(Notification{Code: message[headerSize], Subcode: message[headerSize+1]}))
	}
	if _, err := c.TCPConn.Write(out); err != nil {
		c.because(broken(err))
		return 0, err
	}
	c.sent(kind, message)
	return len(message), nil
}

// Close is called by the library when it is done with the session.
func (c *conn) Close() error {
	c.because("session ended")
	err := c.TCPConn.Close()
	c.over.Do(func() { close(c.ended) })
	return err
}

// refuse ends the session with a notification.
func (c *conn) refuse(n Notification) error {
	c.because(unreadable(n))
	c.notify(n)
	return errEnded
}

// notify sends a notification and closes the connection. A peer that doesn't read
// holds it up for no longer than a second.
func (c *conn) notify(n Notification) {
	if message, err := n.message(); err == nil {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // then the next line fails
		_, _ = c.TCPConn.Write(message)                     // the connection is closed anyway
	}
	c.Close()
}

// because notes why the session ends; the first reason counts.
func (c *conn) because(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == "" {
		c.reason = reason
	}
}

// at reports whether the session is in phase p.
func (c *conn) at(p phase) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == p
}

// advance goes from one phase to the next.
func (c *conn) advance(from, to phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == from {
		c.phase = to
	}
}

// count counts a message that was received.
func (c *conn) count(kind uint8) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counters.MessagesReceived++
	if kind == wire.BGP_MSG_UPDATE {
		c.counters.UpdatesReceived++
	}
}
