// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// member is a session with what a listener needs to serve it.
type member struct {
	*session
	// wakes is when the session is to be looked at, place where it stands in the
	// listener's queue.
	wakes time.Time
	place int

	// out sends the session's packets; nil before the first one, and after an error
	// of the way to the peer. source is its port.
	out    *socket
	source uint16
	// problem is why the last packet wasn't sent, refused why the last one heard was
	// discarded; nil if it wasn't.
	problem, refused error
}

// send sends a packet. What goes wrong is for status: the next packet tries
// again.
func (m *member) send(l link, p *packet) {
	if m.out == nil {
		m.out, m.source, m.problem = l.dial(m.peer.Local, m.peer.Address, m.source)
		if m.problem != nil {
			return
		}
	}
	b := p.bytes()
	m.problem = m.out.send(b[:])
	if m.problem == nil {
		return
	}
	// Errors of earlier packets, which came back by ICMP, are reported instead of
	// sending.
	again := m.out.send(b[:])
	if again != nil && !errors.Is(again, unix.EAGAIN) && !errors.Is(again, unix.ECONNREFUSED) {
		// The own address may be another one by now.
		m.close()
	}
}

func (m *member) close() {
	if m.out != nil {
		_ = m.out.close()
		m.out = nil
	}
}

// status describes the session.
func (m *member) status() Status {
	s := Status{State: m.state.word(), Since: m.since, Flaps: m.flaps}
	if m.state != up {
		s.Reason = m.reason()
	}
	return s
}

// reason is why the session isn't up, the nearest cause first.
func (m *member) reason() string {
	switch {
	case m.listening:
		return "waits for the BGP session"
	case m.remoteState == adminDown:
		return "peer is administratively down"
	case errors.Is(m.problem, unix.ECONNREFUSED):
		return "peer has no BFD: its port is closed"
	case m.problem != nil:
		return fmt.Sprintf("cannot send: %s", m.problem)
	case m.refused != nil:
		return m.refused.Error()
	case m.remote != 0 && m.state == down:
		return "peer says: " + m.remoteDiagnostic.String()
	case m.remote != 0:
		return "peer is coming up"
	case m.diagnostic == DetectionTimeExpired:
		return "peer has fallen silent"
	}
	return "nothing heard from the peer"
}

// admit says what is wrong with a datagram's way here.
func (l link) admit(d *datagram) error {
	if !l.multihop && d.hops != hopLimit {
		return fmt.Errorf("packet with TTL %d: want %d, as from the same link (RFC 5881 §5)", d.hops, hopLimit)
	}
	return nil
}

// linkOf is what a peer is heard on.
func linkOf(p *Peer) link { return link{multihop: p.Multihop, v6: p.Address.Is6()} }
