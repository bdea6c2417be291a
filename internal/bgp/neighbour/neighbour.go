// SPDX-License-Identifier: Apache-2.0

// Package neighbour keeps one configured peer connected: it calls it or waits for
// its call, has the library hold the session, tells it the routes with the next
// hops that they have towards this peer, tries again after a loss, and knows at
// any time how the peer is doing. Package speaker has one for each peer.
package neighbour

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
	"fairlead.io/fairlead/internal/bgp/gobgp"
	"fairlead.io/fairlead/internal/bgp/tcp"
)

// Neighbour is a peer that is kept connected.
type Neighbour struct {
	local bgp.Local
	peer  bgp.Peer
	log   *slog.Logger
	lib   *gobgp.Peer
	// tellEstablished is Start's.
	tellEstablished func()
	// calls has the last connection that a passive peer made, falls the last end of
	// BFD's being up.
	calls chan *net.TCPConn
	falls chan fall

	cancel context.CancelFunc
	// begin is closed by the first Set: with an earlier session, a peer that kept
	// the routes of a former agent would lose them.
	begin chan struct{}
	done  chan struct{}

	// telling is held while the peer is told of routes.
	telling sync.Mutex
	routes  []bgp.Route
	first   sync.Once

	mu      sync.Mutex
	session *gobgp.Session // nil between sessions
	status  status
}

// Start begins to keep a peer connected. Every session that is established is told
// of, and waits until established returns.
func Start(ctx context.Context, local bgp.Local, peer bgp.Peer, established func(), log *slog.Logger) (*Neighbour, error) {
	log = log.With("peer", peer.Address, "asn", peer.ASN)
	lib, err := gobgp.NewPeer(ctx, local, peer, log)
	if err != nil {
		return nil, fmt.Errorf("peer %s: %w", peer.Address, err)
	}
	running, cancel := context.WithCancel(context.Background())
	n := &Neighbour{
		local: local, peer: peer, tellEstablished: established, log: log, lib: lib, cancel: cancel,
		calls: make(chan *net.TCPConn, 1), falls: make(chan fall, 1),
		begin: make(chan struct{}), done: make(chan struct{}),
	}
	n.status.reason = "waits for the first routes"
	go n.run(running)
	return n, nil
}

// Peer is the configuration.
func (n *Neighbour) Peer() bgp.Peer { return n.peer }

// Set makes routes all that the peer is told. It doesn't wait for the peer.
func (n *Neighbour) Set(routes []bgp.Route) error {
	n.telling.Lock()
	defer n.telling.Unlock()
	n.routes = routes
	n.first.Do(func() { close(n.begin) })
	return n.tell()
}

// Stop ends the session with a notification, or for nil without a word, and with
// it the neighbour. A peer that doesn't read holds it up for a second.
func (n *Neighbour) Stop(notification *gobgp.Notification) {
	n.stops()
	if session := n.current(); session != nil {
		if notification == nil {
			session.Drop("abandoned")
		} else {
			session.End(*notification)
		}
	}
	n.cancel()
	<-n.done
	n.lib.Close()
	select {
	case conn := <-n.calls:
		conn.Close()
	default:
	}
}

// Leave withdraws all routes, waits until the peer has been told, and stops.
func (n *Neighbour) Leave(ctx context.Context) error {
	err := n.Set(nil)
	if session := n.current(); session != nil && err == nil {
		err = session.Silent(ctx)
	}
	n.Stop(&gobgp.AdministrativeShutdown)
	if err != nil {
		return fmt.Errorf("peer %s: withdraw: %w", n.peer.Address, err)
	}
	return nil
}

// run holds one session after another.
func (n *Neighbour) run(ctx context.Context) {
	defer close(n.done)
	listened := n.listen()
	select {
	case <-n.begin:
	case <-ctx.Done():
		return
	}
	select {
	case <-listened:
	case <-ctx.Done():
		return
	}
	var pause tcp.Backoff
	for restarted := true; ctx.Err() == nil; {
		conn, reason := n.connect(ctx)
		lived := time.Duration(0)
		if conn != nil {
			lived, reason = n.hold(ctx, conn, restarted)
			restarted = restarted && lived == 0
		}
		n.pause(ctx, pause.Next(lived), reason)
	}
}

// listen returns what becomes readable when BFD has resumed what the peer may have
// left of the session with a former agent. If the first session with the peer were
// established before and that ran out, the peer would take it for this one's end.
func (n *Neighbour) listen() <-chan time.Time {
	if n.peer.BFD == nil {
		return time.After(0)
	}
	return time.After(bfd.Listening(*n.peer.BFD))
}

// connect returns a connection to the peer, or why there is none.
func (n *Neighbour) connect(ctx context.Context) (*net.TCPConn, string) {
	if n.peer.Passive {
		return n.called(ctx)
	}
	n.waits(bgp.Connect)
	conn, err := tcp.Dial(ctx, n.local, &n.peer)
	if err != nil {
		return nil, err.Error()
	}
	return conn, ""
}

// pause waits before the next try.
func (n *Neighbour) pause(ctx context.Context, pause time.Duration, reason string) {
	if ctx.Err() != nil {
		return
	}
	n.failed(reason, time.Now().Add(pause))
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// current is the session that there is, or nil.
func (n *Neighbour) current() *gobgp.Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.session
}
