// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	"context"
	"net"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/gobgp"
)

// patience is how long a peer may take from the connection to the session.
const patience = 10 * time.Second

// hold holds a session over conn until it ends. It returns how long it was
// established and why it ended.
func (n *Neighbour) hold(ctx context.Context, conn *net.TCPConn, restarted bool) (time.Duration, string) {
	opening, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	session, err := n.lib.Begin(opening, conn, gobgp.Handshake{Restarted: restarted, Opened: n.opened})
	if err != nil {
		return 0, err.Error()
	}
	n.began(session)
	defer n.ended(session)
	select {
	case <-session.Established():
	case <-session.Ended():
		return 0, session.Reason()
	case <-opening.Done():
		session.Drop(n.unanswered())
		return 0, session.Reason()
	}
	since := time.Now()
	n.established(session, since)
	for {
		select {
		case <-session.Ended():
			return time.Since(since), session.Reason()
		case <-ctx.Done():
			session.Drop("stopped")
		case f := <-n.falls:
			if n.concerns(f, since) {
				session.End(fell(f))
			}
		}
	}
}

// unanswered is why a peer may take a connection and then be silent.
func (n *Neighbour) unanswered() string {
	if n.peer.TTLSecurity > 0 {
		return "the peer doesn't answer: it may be further away than TTL security allows, or not have it"
	}
	return "the peer doesn't answer: it may hang, or want TTL security"
}

// opened is called by the library when the peer has said what it can do: now its
// routes can be made.
func (n *Neighbour) opened(session *gobgp.Session) {
	n.telling.Lock()
	defer n.telling.Unlock()
	if err := n.announce(session); err != nil {
		n.log.Error("routes not announced", "error", err)
	}
}

// tell tells the peer of the routes, if it can be told.
func (n *Neighbour) tell() error {
	session := n.current()
	if session == nil || session.State() != bgp.Established {
		return nil // opened and established will
	}
	return n.announce(session)
}

// announce has the library announce what the peer is to know.
func (n *Neighbour) announce(session *gobgp.Session) error {
	own := ownHops(n.peer.Address, session.LocalAddress())
	routes, leftOut, why := own.resolve(n.routes, session.Open())
	n.omitted(leftOut, why)
	return n.lib.Announce(routes)
}
