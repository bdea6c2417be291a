// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
)

// peer announces the routes to one peer, with the next hops that they have towards it.
type peer struct {
	*Keeper
	instance *session.Peer
	// first closes Ready at the first set. A session without routes before that would
	// make a peer drop those that it kept of a former agent.
	first func()

	// announcing is held while routes are announced, and guards routes.
	announcing sync.Mutex
	routes     []bgp.Route
}

func startPeer(ctx context.Context, local bgp.Local, config bgp.Peer, onEstablished func(), log *slog.Logger) (*peer, error) {
	log = log.With("peer", config.Address, "asn", config.ASN)
	ready := make(chan struct{})
	p := &peer{first: sync.OnceFunc(func() { close(ready) })}
	var err error
	if p.instance, err = session.NewPeer(ctx, local, config, p.resync, log); err != nil {
		return nil, fmt.Errorf("peer %s: %w", config.Address, err)
	}
	p.Keeper = Keep(KeeperOptions{
		Local: local, Peer: config, Log: log, Ready: ready, Waiting: "waiting for the first routes",
		Begin: p.instance.Begin,
		OnEstablished: func(s *session.Session) {
			onEstablished()
			p.resync(s) // what has changed since the OPEN
		},
	})
	return p, nil
}

// set makes routes all that is announced to the peer. It doesn't wait for the peer.
func (p *peer) set(routes []bgp.Route) error {
	p.announcing.Lock()
	defer p.announcing.Unlock()
	p.routes = routes
	p.first()
	s := p.Session()
	if s == nil || s.Status().State != bgp.Established {
		return nil // resync does it
	}
	if err := p.announce(s); err != nil {
		return fmt.Errorf("peer %s: %w", p.Peer.Address, err)
	}
	return nil
}

// stop ends the session with a notification, or for nil without one, and the peer.
func (p *peer) stop(notification *session.Notification) {
	p.Stop(func(s *session.Session) {
		if notification == nil {
			s.Drop("abandoned")
		} else {
			s.End(*notification)
		}
	})
	p.instance.Close()
}

// leave withdraws all routes, waits until the withdrawals are sent, and stops.
func (p *peer) leave(ctx context.Context) error {
	err := p.set(nil)
	if s := p.Session(); s != nil && err == nil {
		err = s.AwaitWithdrawn(ctx)
	}
	p.stop(&session.AdministrativeShutdown)
	if err != nil {
		return fmt.Errorf("peer %s: withdraw: %w", p.Peer.Address, err)
	}
	return nil
}

// resync is called when the peer's OPEN has arrived, whose capabilities decide which
// routes it gets, and when the session is established.
func (p *peer) resync(s *session.Session) {
	p.announcing.Lock()
	defer p.announcing.Unlock()
	if err := p.announce(s); err != nil {
		p.Log.Error("routes not announced", "error", err)
	}
}

func (p *peer) announce(s *session.Session) error {
	own := ownHops(p.Peer.Address, s.LocalAddress())
	routes, omitted, reason := own.resolve(p.routes, s.Status().Open)
	p.omitted(omitted, reason)
	return p.instance.Announce(routes)
}
