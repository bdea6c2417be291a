// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/gobgp"
)

// status is what is known of the peer besides its session.
type status struct {
	state  bgp.SessionState // between sessions
	since  time.Time
	reason string
	next   time.Time
	flaps  uint64
	// watched is when BFD came up.
	watched time.Time
	// stopping says that what ends now ends on purpose.
	stopping bool
	// logged is the last reason of a failure that was logged: a peer that stays
	// away is told of once.
	logged string
	// former counts the messages of sessions that have ended.
	former gobgp.Counters
	// leftOut routes have no next hop towards the peer, or it doesn't take them.
	leftOut int
	why     string
}

// waits notes that there is no connection, and what is done about it. Why there was
// none before stays the reason until it is known better.
func (n *Neighbour) waits(state bgp.SessionState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status.state, n.status.next = state, time.Time{}
	switch {
	case n.status.logged != "":
	case state == bgp.Active:
		n.status.reason = "waits for the peer's call"
	default:
		n.status.reason = "calls the peer"
	}
}

// stops notes that the neighbour is about to stop.
func (n *Neighbour) stops() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status.stopping = true
}

// failed notes why there is no session, and when the peer is tried again.
func (n *Neighbour) failed(reason string, next time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status.state, n.status.next = bgp.Idle, next
	n.miss(reason)
}

// miss notes why there is no session, and logs it if it is news. It is called with
// mu held.
func (n *Neighbour) miss(reason string) {
	n.status.reason = reason
	if n.status.logged != reason && !n.status.stopping {
		n.status.logged = reason
		n.log.Warn("no bgp session", "reason", reason)
	}
}

// began notes that there is a session.
func (n *Neighbour) began(session *gobgp.Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.session, n.status.next = session, time.Time{}
}

// established notes that the session is established, and tells the peer what has
// changed in the meantime.
func (n *Neighbour) established(session *gobgp.Session, since time.Time) {
	n.mu.Lock()
	n.status.since, n.status.reason, n.status.logged = since, "", ""
	n.mu.Unlock()
	n.log.Info("bgp session established", "local", session.LocalAddress(), "routerID", session.Open().RouterID)
	n.tellEstablished()
	n.telling.Lock()
	defer n.telling.Unlock()
	if err := n.tell(); err != nil {
		n.log.Error("routes not announced", "error", err)
	}
}

// ended notes that the session has ended.
func (n *Neighbour) ended(session *gobgp.Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.session = nil
	n.status.former = sum(n.status.former, session.Counters())
	n.status.leftOut, n.status.why = 0, ""
	if session.State() == bgp.Established {
		n.status.since = time.Now()
		n.status.flaps++
	}
}

// omitted notes how many routes the peer isn't told of, and why.
func (n *Neighbour) omitted(leftOut int, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if leftOut > 0 && n.status.why != why {
		n.log.Warn("routes left out", "routes", leftOut, "reason", why)
	}
	n.status.leftOut, n.status.why = leftOut, why
}

// State is how the peer is doing now.
func (n *Neighbour) State() bgp.PeerState {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := bgp.PeerState{
		Address: n.peer.Address, ASN: n.peer.ASN, State: n.status.state, Since: n.status.since,
		Reason: n.status.reason, NextTry: n.status.next, Flaps: n.status.flaps,
		OmittedRoutes: uint64(n.status.leftOut), OmittedReason: n.status.why,
	}
	if s.State == "" {
		s.State = bgp.Idle
	}
	counters := n.status.former
	if n.session != nil {
		counters = sum(counters, n.session.Counters())
		n.describe(&s)
	}
	s.MessagesReceived, s.MessagesSent = counters.MessagesReceived, counters.MessagesSent
	s.UpdatesReceived, s.UpdatesSent = counters.UpdatesReceived, counters.UpdatesSent
	return s
}

// describe fills in what the session knows.
func (n *Neighbour) describe(s *bgp.PeerState) {
	s.State = n.session.State()
	open := n.session.Open()
	if s.State != bgp.Established || open == nil {
		return
	}
	s.Reason = ""
	s.LocalAddress, s.RouterID = n.session.LocalAddress(), open.RouterID
	s.HoldTime = min(n.peer.HoldTime, open.HoldTime)
	s.GracefulRestart = open.GracefulRestart && n.peer.RestartTime > 0
	s.RoutesAnnounced = uint64(n.session.Announced())
}

// sum adds up.
func sum(a, b gobgp.Counters) gobgp.Counters {
	return gobgp.Counters{
		MessagesReceived: a.MessagesReceived + b.MessagesReceived, MessagesSent: a.MessagesSent + b.MessagesSent,
		UpdatesReceived: a.UpdatesReceived + b.UpdatesReceived, UpdatesSent: a.UpdatesSent + b.UpdatesSent,
	}
}
