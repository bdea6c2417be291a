// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// session is one end of a session: the state machine of RFC 5880 §6.8. It takes
// the active role. It neither waits nor sends: its owner hands in packets
// (receive) and the time (expire, transmit), and comes back at wake.
type session struct {
	peer Peer
	// jitter returns a number from 0 up to 1.
	jitter func() float64
	// tell hears of every change of state but those that disable makes.
	tell func(Event)

	// local and remote are the discriminators; remote is 0 until the peer is heard,
	// and when it hasn't been for the detection time.
	local, remote uint32
	state         state
	// listening says that the session has not begun: it says nothing, and hears only
	// what it can resume.
	listening  bool
	since      time.Time
	diagnostic Diagnostic
	flaps      uint64

	// What the last packet said, heard when.
	heard            time.Time
	remoteState      state
	remoteDiagnostic Diagnostic
	remoteDemand     bool
	remoteMultiplier uint8
	remoteMinTx      time.Duration
	remoteMinRx      time.Duration
	intervals        intervals
	poll             poll
	sent             time.Time     // the last packet that was due by time or state
	part             float64       // of the interval after sent, by jitter
	pace             time.Duration // intervals.tx as the interval after sent reckons with it
	final            bool          // a poll is to be answered
	urgent           bool          // there is something new to say
	leaveEnd         time.Time     // when a disabled session stops saying so
}

// farewell bounds how long a disabled session goes on saying so.
const farewell = time.Second

// newSession starts in state down, and listens.
func newSession(now time.Time, peer Peer, local uint32, jitter func() float64, tell func(Event)) *session {
	s := &session{
		peer: peer, local: local, jitter: jitter, tell: tell,
		state: down, listening: true, since: now, part: 1,
	}
	s.forget()
	s.intervals = s.wanted()
	return s
}

// begin lets the session speak.
func (s *session) begin() {
	s.urgent = s.urgent || s.listening
	s.listening = false
}

// Listening is how long a session has to listen to hear of one that the peer has
// and that it can resume.
func Listening(b bgp.BFD) time.Duration { return min(b.Interval, slow) }

// resume takes up the session that the peer has with a process which died at this
// address a moment ago, and whose discriminator is in what the peer still sends. So
// a restart in less than the detection time is no failure for the peer. Nothing in
// RFC 5880 asks for another discriminator then. It is for sessions that have heard
// nothing yet, and only as long as the peer can believe in the former one. It
// reports whether p is now a packet of this session.
func (s *session) resume(now time.Time, p *packet) bool {
	detectionTime := time.Duration(s.peer.Multiplier) * max(s.peer.Interval, p.requiredMinRx)
	if p.state != up || s.state != down || !s.heard.IsZero() || now.Sub(s.since) > detectionTime {
		return false
	}
	s.local, s.state, s.listening = p.your, initial, false
	return true
}

// receive handles a packet of this session: RFC 5880 §6.8.6 from the look at
// authentication on.
func (s *session) receive(now time.Time, p *packet) error {
	switch {
	case p.authenticated:
		return errAuthenticated
	case s.listening:
		return errListening
	}
	s.heard = now
	s.remote, s.remoteState, s.remoteDiagnostic = p.my, p.state, p.diagnostic
	s.remoteDemand, s.remoteMultiplier = p.demand, p.multiplier
	s.remoteMinTx, s.remoteMinRx = p.desiredMinTx, p.requiredMinRx
	if s.poll.heard(p.final) {
		s.intervals.agree()
	}
	if s.state == adminDown {
		// The peer has not heard it yet.
		s.urgent = s.urgent || p.state > down
		return nil
	}
	s.follow(now, p.state)
	s.final = s.final || p.poll
	return nil
}

// follow is the state machine's table (RFC 5880 §6.8.6; figure in §6.2).
func (s *session) follow(now time.Time, remote state) {
	switch {
	case remote == adminDown:
		if s.state != down {
			s.enter(now, down, NeighbourSignaledDown)
		}
	case s.state == down && remote == down:
		s.enter(now, initial, s.diagnostic)
	case s.state == down && remote == initial, s.state == initial && remote >= initial:
		s.enter(now, up, NoDiagnostic)
	case s.state == up && remote == down:
		s.enter(now, down, NeighbourSignaledDown)
	}
}

// expire takes the session down if the peer has been silent for too long, and
// forgets the peer (RFC 5880 §6.8.4, §6.8.1).
func (s *session) expire(now time.Time) {
	if s.remote == 0 || now.Before(s.detectionEnd()) {
		return
	}
	s.forget()
	if s.state == initial || s.state == up {
		s.enter(now, down, DetectionTimeExpired)
	}
}

// forget sets what is known of the peer to what RFC 5880 §6.8.1 begins with.
func (s *session) forget() {
	s.remote, s.remoteState, s.remoteDiagnostic, s.remoteDemand = 0, down, NoDiagnostic, false
	s.remoteMinRx = time.Microsecond
}

func (s *session) enter(now time.Time, to state, why Diagnostic) {
	old := s.state
	s.state, s.since, s.diagnostic, s.urgent = to, now, why, true
	if old == up {
		s.flaps++
	}
	s.advertise()
	s.tell(Event{
		Peer: s.peer.Address, At: now, Old: old.word(), New: to.word(),
		Diagnostic: why, RemoteAdminDown: s.remoteState == adminDown,
	})
}

// change takes other intervals or another multiplier.
func (s *session) change(peer Peer) {
	s.urgent = s.urgent || peer.Multiplier != s.peer.Multiplier
	s.peer = peer
	s.advertise()
}

// disable ends the session on purpose: the peer is told for as long as it hasn't
// heard it, but not longer than until left (RFC 5880 §6.8.16).
func (s *session) disable(now time.Time) {
	s.state, s.since, s.diagnostic, s.urgent, s.listening = adminDown, now, AdministrativelyDown, true, false
	s.leaveEnd = now.Add(min(s.detectionTime(), farewell))
	s.advertise()
}

// left reports whether a disabled session has nothing more to say.
func (s *session) left(now time.Time) bool {
	if s.state != adminDown || s.urgent {
		return false
	}
	return s.remote == 0 || s.remoteState <= down || !now.Before(s.leaveEnd)
}
