// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"math"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// session is the state machine of RFC 5880 §6.8, in the active role. It neither waits
// nor sends: its owner passes packets (receive) and the time (expire, transmit), and
// calls again at wake.
type session struct {
	peer Peer
	// jitter returns a number from 0 up to 1.
	jitter func() float64
	// notify is called for each change of state, but not by disable.
	notify func(Event)

	// local and remote are the discriminators; remote is 0 before the first packet of
	// the peer and after a detection time without one.
	local, remote uint32
	state         state
	// passive is set until begin: the session sends nothing, and accepts only packets
	// that it can resume from.
	passive    bool
	since      time.Time
	diagnostic Diagnostic
	flaps      uint64

	// The peer's last packet.
	lastReceived     time.Time
	signalled        time.Time // since when it may not know this session; zero if it does
	remoteState      state
	remoteDiagnostic Diagnostic
	remoteDemand     bool
	remoteMultiplier uint8
	remoteMinTx      time.Duration
	remoteMinRx      time.Duration
	poll             bool      // the peer is to acknowledge minTx (RFC 5880 §6.5)
	sent             time.Time // the last packet that was due by time or state
	part             float64   // of the interval after sent, by jitter
	final            bool      // a poll is to be answered
	urgent           bool      // a packet is due at once
	disabledUntil    time.Time // when a disabled session stops sending
}

// adminDownLinger bounds how long a disabled session keeps sending.
const adminDownLinger = time.Second

// newSession returns a passive session in state down.
func newSession(now time.Time, peer Peer, local uint32, jitter func() float64, notify func(Event)) *session {
	s := &session{
		peer: peer, local: local, jitter: jitter, notify: notify,
		state: down, passive: true, since: now, part: 1,
	}
	s.resetRemote()
	return s
}

// begin lets the session send.
func (s *session) begin() {
	s.urgent = s.urgent || s.passive
	s.passive = false
}

// PassiveHold is how long a new session has to stay passive to find one that the peer
// still has with a former process, and that it can resume.
func PassiveHold(b bgp.BFD) time.Duration { return min(b.Interval, slow) }

// resume continues the session of a former process at this address, whose
// discriminator the peer still sends, so that the peer doesn't notice a restart within
// the detection time. RFC 5880 doesn't require another discriminator then. The session
// must not have received anything, and the peer's detection time not be over. It
// reports whether p is now a packet of this session.
func (s *session) resume(now time.Time, p *packet) bool {
	detectionTime := time.Duration(s.peer.Multiplier) * max(s.peer.Interval, p.requiredMinRx)
	if p.state != up || s.state != down || !s.lastReceived.IsZero() || now.Sub(s.since) > detectionTime {
		return false
	}
	s.local, s.state, s.passive = p.your, initial, false
	return true
}

// receive handles a packet of this session: RFC 5880 §6.8.6 from the check of
// authentication on.
func (s *session) receive(now time.Time, p *packet) error {
	switch {
	case p.authenticated:
		return errAuthenticated
	case s.passive:
		return errPassive
	case s.state == up && p.your == 0:
		// Anyone can send this. If the peer has started a new session, packets with our
		// discriminator end.
		if s.signalled.IsZero() {
			s.signalled = now
		}
		return errUnproven
	}
	s.lastReceived, s.signalled = now, time.Time{}
	s.remote, s.remoteState, s.remoteDiagnostic = p.my, p.state, p.diagnostic
	s.remoteDemand, s.remoteMultiplier = p.demand, p.multiplier
	s.remoteMinTx, s.remoteMinRx = p.desiredMinTx, p.requiredMinRx
	s.poll = s.poll && !p.final
	if s.state == adminDown {
		// The peer has not received it yet.
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

// expire takes the session down if the detection time is over, and resets the
// peer's state (RFC 5880 §6.8.4, §6.8.1).
func (s *session) expire(now time.Time) {
	if s.remote == 0 || now.Before(s.detectionEnd()) {
		return
	}
	at, why := now, DetectionTimeExpired
	if !s.signalled.IsZero() {
		at, why = s.signalled, NeighbourSignaledDown
	}
	s.resetRemote()
	if s.state == initial || s.state == up {
		s.enter(at, down, why)
	}
}

// resetRemote sets the peer's variables to their initial values (RFC 5880 §6.8.1).
func (s *session) resetRemote() {
	s.remote, s.remoteState, s.remoteDiagnostic, s.remoteDemand = 0, down, NoDiagnostic, false
	s.remoteMinRx, s.signalled = time.Microsecond, time.Time{}
}

// set changes the state, which is sent at once.
func (s *session) set(now time.Time, to state, why Diagnostic) {
	former := s.minTx()
	s.state, s.since, s.diagnostic, s.urgent = to, now, why, true
	s.poll = s.poll || s.minTx() != former
}

// enter is set with an event.
func (s *session) enter(now time.Time, to state, why Diagnostic) {
	old, began := s.state, s.since
	s.set(now, to, why)
	if old == up {
		s.flaps++
	}
	s.notify(Event{
		Peer: s.peer.Address, Began: began, At: now, Old: old.public(), New: to.public(),
		Diagnostic: why, RemoteAdminDown: s.remoteState == adminDown,
	})
}

// disable takes the session administratively down, and keeps sending until the peer
// has confirmed it or the session is finished (RFC 5880 §6.8.16).
func (s *session) disable(now time.Time) {
	s.set(now, adminDown, AdministrativelyDown)
	s.passive = false
	s.disabledUntil = now.Add(min(s.detectionTime(), adminDownLinger))
}

// finished reports whether a disabled session has nothing more to send.
func (s *session) finished(now time.Time) bool {
	if s.state != adminDown || s.urgent {
		return false
	}
	return s.remote == 0 || s.remoteState <= down || !now.Before(s.disabledUntil)
}

// slow is the shortest transmission interval of a session that isn't up (RFC 5880
// §6.8.3).
const slow = time.Second

// minTx is the shortest interval between packets, which depends on the state only. So
// it may always change at once: only a session that stays up would have to wait for
// the peer's acknowledgement of a longer one (RFC 5880 §6.8.3).
func (s *session) minTx() time.Duration {
	if s.state == up {
		return s.peer.Interval
	}
	return max(s.peer.Interval, slow)
}

// detectionTime is the one of RFC 5880 §6.8.4.
func (s *session) detectionTime() time.Duration {
	return time.Duration(s.remoteMultiplier) * max(s.peer.Interval, s.remoteMinTx)
}

func (s *session) detectionEnd() time.Time { return s.lastReceived.Add(s.detectionTime()) }

// periodic reports whether packets are sent periodically: unless the peer wants none,
// or is in demand mode and needs no poll (RFC 5880 §6.8.7).
func (s *session) periodic() bool {
	demand := s.remoteDemand && s.state == up && s.remoteState == up
	return s.remoteMinRx != 0 && (!demand || s.poll)
}

// due is when the next periodic packet is to be sent (RFC 5880 §6.8.2, §6.8.7).
func (s *session) due() time.Time {
	return s.sent.Add(time.Duration(s.part * float64(max(s.minTx(), s.remoteMinRx))))
}

// drawPart draws the part of the next interval that is used: 75 to 100 percent, and at
// most 90 with a multiplier of 1 (RFC 5880 §6.8.7).
func (s *session) drawPart() float64 {
	if s.peer.Multiplier == 1 {
		return 0.90 - 0.15*s.jitter()
	}
	return 1 - 0.25*s.jitter()
}

// transmit returns the packet that is due now, if any: the answer to a poll, a change,
// or the periodic packet.
func (s *session) transmit(now time.Time) (p packet, ok bool) {
	p = packet{
		diagnostic: s.diagnostic, state: s.state, multiplier: s.peer.Multiplier, my: s.local, your: s.remote,
		desiredMinTx: s.minTx(), requiredMinRx: s.peer.Interval,
	}
	switch {
	case s.passive:
		return packet{}, false
	case s.final:
		s.final, p.final = false, true
	case s.urgent, s.periodic() && !now.Before(s.due()):
		s.urgent, p.poll = false, s.poll
		s.sent, s.part = now, s.drawPart()
	default:
		return packet{}, false
	}
	return p, true
}

// never is beyond every deadline.
const never = time.Duration(math.MaxInt64)

// wake is when expire, transmit or finished are due next; the zero Time is at once. A
// peer that wants no packets has sent one, so one of the two times always applies.
func (s *session) wake() time.Time {
	if s.passive {
		return s.since.Add(never)
	}
	if s.final || s.urgent {
		return time.Time{}
	}
	at := s.due()
	if end := s.detectionEnd(); s.remote != 0 && (end.Before(at) || !s.periodic()) {
		at = end
	}
	if s.state == adminDown && s.disabledUntil.Before(at) {
		at = s.disabledUntil
	}
	return at
}
