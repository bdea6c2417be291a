// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

// Link is a connection with a peer of a reflector, as the library sees it. It
// keeps away what the library would fall over, and knows why a session ended.
//
// One goroutine reads at a time; what follows mu is guarded by it.
type Link struct {
	*net.TCPConn
	peer bgp.Peer
	// key is the address by which the library knows the peer.
	key       netip.Addr
	restarted bool
	// router says that nothing is learnt from the peer.
	router bool

	// message is being read, and has that many bytes yet; ready are those of the
	// last one that the library has still to read.
	message []byte
	have    int
	ready   []byte
	options wire.MarshallingOption
	// paths are given their identifiers; nil if there is one of each prefix. It is
	// there before the library writes an UPDATE.
	paths  *pathIDs
	retold retelling
	// ended is closed when nothing more can be read.
	ended chan struct{}
	over  sync.Once

	mu     sync.Mutex
	heard  map[netip.Prefix]Heard
	reason string
	// refused says that it was this side that ended the session, by a notification.
	refused bool
}

// AcceptClient hands the library the connection of a client, which has been added
// under the key and is active.
func (s *Server) AcceptClient(caller *Caller, key netip.Addr, client bgp.Peer) *Link {
	return s.take(caller, &Link{peer: client, key: key, heard: make(map[netip.Prefix]Heard)})
}

// AcceptRouter hands the library the connection of a router, which has been added
// and is active. Restarted says that it is the first with it since the reflector
// started (RFC 4724 §4.1).
func (s *Server) AcceptRouter(caller *Caller, router bgp.Peer, restarted bool) *Link {
	l := &Link{peer: router, key: router.Address, restarted: restarted, router: true}
	l.retold.begin = func() { s.retell(router.Address) }
	return s.take(caller, l)
}

func (s *Server) take(caller *Caller, l *Link) *Link {
	l.TCPConn, l.options.ExtendedMessage = caller.TCPConn, true
	l.message, l.have = caller.opening, len(caller.opening)
	if missing := headerSize - l.have; missing > 0 {
		l.message = append(l.message, make([]byte, missing)...)
	}
	l.ended = make(chan struct{})
	s.accept <- l
	return l
}

// RemoteAddr is where the library looks for whose connection it is.
func (l *Link) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.AddrPortFrom(l.key, 0)) }

// Reason is why the session ended, in words for an operator; empty if nobody said.
func (l *Link) Reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// Refused reports whether this side ended the session by a notification.
func (l *Link) Refused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// Depart ends the session without a word, as if the reflector had died: a peer with
// graceful restart keeps what it was told. The channel is closed when the peer has
// noticed.
func (l *Link) Depart() (noticed <-chan struct{}) {
	_ = l.CloseWrite() // one that is closed already has been noticed
	return l.ended
}

// Read gives the library whole messages, one after the other.
func (l *Link) Read(b []byte) (int, error) {
	if len(l.ready) == 0 {
		l.retold.reading()
	}
	for len(l.ready) == 0 {
		if err := l.next(); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) { // with which the library stops its readers
				l.because(broken(err), false)
				l.over.Do(func() { close(l.ended) })
			}
			return 0, err
		}
	}
	n := copy(b, l.ready)
	l.ready = l.ready[n:]
	return n, nil
}

// next reads one message. A deadline may stop it anywhere; it goes on there.
func (l *Link) next() error {
	if err := l.fill(headerSize); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint16(l.message[16:]))
	if size < headerSize {
		return l.refuse(malformed)
	}
	if missing := size - len(l.message); missing > 0 {
		l.message = append(l.message, make([]byte, missing)...)
	}
	if err := l.fill(size); err != nil {
		return err
	}
	l.ready, l.message, l.have = l.message, make([]byte, headerSize), 0
	return l.inspect()
}

// fill reads until the message has size bytes.
func (l *Link) fill(size int) error {
	for l.have < size {
		n, err := l.TCPConn.Read(l.message[l.have:size])
		if l.have += n; err != nil && l.have < size {
			return err
		}
	}
	return nil
}

// inspect looks at a message before the library does, which answers what it can
// read as wrong.
func (l *Link) inspect() error {
	if l.ready[18] == wire.BGP_MSG_KEEPALIVE {
		l.retold.keptAlive()
	}
	if l.router && l.ready[18] == wire.BGP_MSG_UPDATE {
		// It may know all the world's routes. An UPDATE keeps the session alive as a
		// KEEPALIVE does (RFC 4271 §8.2.2).
		var err error
		l.ready, err = wire.NewBGPKeepAliveMessage().Serialize()
		return err
	}
	m, err := parse(l.ready, &l.options)
	if err != nil {
		if fault := new(wire.MessageError); !errors.As(err, &fault) {
			return l.refuse(malformed)
		}
		return nil
	}
	switch body := m.Body.(type) {
	case *wire.BGPOpen:
		open := readOpen(body)
		l.options.Use2ByteAS = !open.longASN
		l.retold.ends = open.GracefulRestart && l.peer.RestartTime > 0
		l.paths = newPathIDs(body)
		if l.peer.HoldTime == 0 {
			binary.BigEndian.PutUint16(l.ready[headerSize+3:], 0)
		}
	case *wire.BGPUpdate:
		l.hear(body)
	case *wire.BGPNotification:
		l.because("peer says: "+readNotification(body).String(), false)
	}
	return nil
}

// refuse ends the session with a notification.
func (l *Link) refuse(n Notification) error {
	l.because(unreadable(n), true)
	if message, err := n.message(); err == nil {
		_ = l.SetWriteDeadline(time.Now().Add(time.Second)) // then the next line fails
		_, _ = l.TCPConn.Write(message)                     // the connection is closed anyway
	}
	l.TCPConn.Close()
	return errEnded
}

// Write sends one message of the library's.
func (l *Link) Write(message []byte) (int, error) {
	out := [][]byte{message}
	switch kind := message[18]; {
	case kind == wire.BGP_MSG_OPEN:
		open, err := ownOpen(message, l.restarted, l.peer.HoldTime == 0)
		if err != nil {
			return 0, err
		}
		out = [][]byte{open}
	case kind == wire.BGP_MSG_UPDATE && l.router:
		var err error
		if out, err = l.update(message); err != nil {
			l.because(err.Error(), false)
			return 0, err
		}
	case kind == wire.BGP_MSG_NOTIFICATION && len(message) >= headerSize+2:
		l.because(Notification{Code: message[headerSize], Subcode: message[headerSize+1]}.String(), true)
	}
	if _, err := l.TCPConn.Write(slices.Concat(out...)); err != nil {
		l.because(broken(err), false)
		return 0, err
	}
	return len(message), nil
}

// because notes why the session ends; the first reason counts.
func (l *Link) because(reason string, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason == "" {
		l.reason, l.refused = reason, refused
	}
}
