// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"math"
	"time"
)

// slow is the shortest interval at which a session that isn't up may transmit
// (RFC 5880 §6.8.3).
const slow = time.Second

// intervals are the own ones: minTx and minRx as packets say them, tx and rx as
// they are in force. The two differ from when a session that is up changes them
// until a poll sequence ends: the peer may still reckon with the old ones
// (RFC 5880 §6.8.3).
type intervals struct {
	minTx, minRx time.Duration
	tx, rx       time.Duration
}

// agree puts into force what the peer has acknowledged.
func (i *intervals) agree() { i.tx, i.rx = i.minTx, i.minRx }

// wanted is what the session's configuration and its state ask for.
func (s *session) wanted() intervals {
	tx := s.peer.Interval
	if s.state != up {
		tx = max(tx, slow)
	}
	return intervals{minTx: tx, minRx: s.peer.Interval, tx: tx, rx: s.peer.Interval}
}

// advertise tells the peer of intervals that are no longer what they were. Only
// those of a session that is up wait for the peer, and of these only a slower pace
// of transmission and a shorter detection time.
func (s *session) advertise() {
	old, now := s.intervals, s.wanted()
	if s.state == up {
		now.tx, now.rx = min(old.tx, now.tx), max(old.rx, now.rx)
	}
	s.intervals = now
	if now.minTx != old.minTx || now.minRx != old.minRx {
		s.poll.wanted, s.urgent = true, true
	}
}

// poll is the poll sequence by which the peer acknowledges intervals (RFC 5880
// §6.5).
type poll struct {
	// wanted says that there are intervals that no sequence has carried from its
	// beginning; active, that packets have the P bit; settling, that a sequence ended
	// and no packet without the F bit has come since, so that an F bit could be
	// another answer to it (RFC 5880 §6.8.3, third choice).
	wanted, active, settling bool
}

// bit begins a sequence if one is wanted and none in the way, and returns the P
// bit.
func (p *poll) bit() bool {
	if p.wanted && !p.active && !p.settling {
		p.wanted, p.active = false, true
	}
	return p.active
}

// heard takes a packet's F bit and reports whether the peer has acknowledged the
// intervals that are advertised now.
func (p *poll) heard(final bool) bool {
	if !final {
		p.settling = false
		return false
	}
	if !p.active {
		return false
	}
	p.active, p.settling = false, true
	return !p.wanted
}

// detectionTime is how long the peer may be silent (RFC 5880 §6.8.4).
func (s *session) detectionTime() time.Duration {
	return time.Duration(s.remoteMultiplier) * max(s.intervals.rx, s.remoteMinTx)
}

func (s *session) detectionEnd() time.Time { return s.heard.Add(s.detectionTime()) }

// periodic reports whether packets are sent all the time: unless the peer wants
// none, or is in demand mode and needs no poll (RFC 5880 §6.8.7).
func (s *session) periodic() bool {
	demand := s.remoteDemand && s.state == up && s.remoteState == up
	return s.remoteMinRx != 0 && (!demand || s.poll.active || s.poll.wanted)
}

// due is when the next periodic packet is to be sent (RFC 5880 §6.8.2, §6.8.7).
func (s *session) due() time.Time {
	interval := max(min(s.pace, s.intervals.tx), s.remoteMinRx)
	return s.sent.Add(time.Duration(s.part * float64(interval)))
}

// rest begins the interval after a packet that is sent now. While the session is
// up, a slower pace begins only with a packet that the former pace made due. The
// peer has acknowledged the slower one by then, but that isn't enough: the poll may
// have overtaken the packet before it, which arrives after the poll and makes the
// peer reckon with the former pace again. It would then give up before the first
// packet of the slower pace. So one more packet at the former pace tells it once
// again. RFC 5880 §6.8.3 only says when the pace may change at the earliest.
func (s *session) rest(now time.Time) {
	if s.state != up || !now.Before(s.due()) {
		s.pace = s.intervals.tx
	}
	s.pace = min(s.pace, s.intervals.tx)
	s.sent, s.part = now, s.shorten()
}

// shorten draws which part of the next interval is used: 75 to 100 percent, and
// at most 90 if the peer may miss no packet at all (RFC 5880 §6.8.7).
func (s *session) shorten() float64 {
	if s.peer.Multiplier == 1 {
		return 0.90 - 0.15*s.jitter()
	}
	return 1 - 0.25*s.jitter()
}

// transmit returns a packet that is to be sent now, if there is one: an answer to
// a poll, news, or the periodic packet.
func (s *session) transmit(now time.Time) (p packet, ok bool) {
	p = packet{
		diagnostic: s.diagnostic, state: s.state, multiplier: s.peer.Multiplier, my: s.local, your: s.remote,
		desiredMinTx: s.intervals.minTx, requiredMinRx: s.intervals.minRx,
	}
	switch {
	case s.listening:
		return packet{}, false
	case s.final:
		s.final, p.final = false, true
	case s.urgent, s.periodic() && !now.Before(s.due()):
		s.urgent, p.poll = false, s.poll.bit()
		s.rest(now)
	default:
		return packet{}, false
	}
	return p, true
}

// never is beyond every deadline.
const never = time.Duration(math.MaxInt64)

// wake is when expire, transmit or left next have something to do; the zero Time
// is at once. A peer that wants no packets has been heard, so one of the two times
// always counts.
func (s *session) wake() time.Time {
	if s.listening {
		return s.since.Add(never)
	}
	if s.final || s.urgent {
		return time.Time{}
	}
	at := s.due()
	if end := s.detectionEnd(); s.remote != 0 && (end.Before(at) || !s.periodic()) {
		at = end
	}
	if s.state == adminDown && s.leaveEnd.Before(at) {
		at = s.leaveEnd
	}
	return at
}
