// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

// Peer announces routes to one peer, in one session after another. Each has an
// instance of the library of its own, as its routes have next hops of their own.
type Peer struct {
	local  bgp.Local
	config bgp.Peer
	log    *slog.Logger
	opened func(*Session)

	mu       sync.Mutex
	instance *Instance
	routes   map[netip.Prefix]bgp.Route // of the instance
}

// NewPeer starts an instance of the library without routes; see Start for when. opened is
// called when the peer's OPEN has arrived, while the library waits: routes announced in
// it are those that the session begins with.
func NewPeer(ctx context.Context, local bgp.Local, config bgp.Peer, opened func(*Session), log *slog.Logger) (*Peer, error) {
	p := &Peer{local: local, config: config, opened: opened, log: log}
	return p, p.start(ctx)
}

// start starts an instance, in place of the one before if there is one.
func (p *Peer) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	instance, err := Start(ctx, p.local, Events{Changed: func(Change) {}, EndOfRIB: func(netip.Addr) {}}, p.log)
	if err != nil {
		return err
	}
	if p.instance != nil {
		p.instance.Close()
	}
	p.instance, p.routes = instance, make(map[netip.Prefix]bgp.Route)
	return nil
}

// Close ends the instance, after its session.
func (p *Peer) Close() { p.instance.Close() }

// Begin begins a session over a connection, which it takes over. The session before
// has ended. restarted reports that this is the peer's first one since the agent started.
func (p *Peer) Begin(ctx context.Context, conn *Pending, restarted bool) (*Session, error) {
	s := newSession(conn, p.local, p.config)
	s.restarted, s.opened = restarted, p.opened
	if p.instance.stuck.Load() {
		if err := p.start(ctx); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return s, p.instance.begin(ctx, s, nil)
}

// Announce makes routes, which have next hops and different prefixes, all that is
// announced to the peer; only differences are sent. Between a session's OPEN and its
// being established only NewPeer's opened may call it: the library loses changes
// while it establishes the session.
func (p *Peer) Announce(routes []bgp.Route) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var invalid error
	var withdraw, announce []*apiutil.Path
	wanted := make(map[netip.Prefix]bgp.Route, len(routes))
	for _, route := range routes {
		path, err := newPath(&route, p.local.ASN, p.config.External(p.local))
		if err != nil {
			invalid = errors.Join(invalid, err)
			continue
		}
		wanted[route.Prefix] = route
		if old, ok := p.routes[route.Prefix]; !ok || !old.Equal(&route) {
			announce = append(announce, path)
		}
	}
	for prefix := range p.routes {
		if _, ok := wanted[prefix]; !ok {
			nlri, _ := wire.NewIPAddrPrefix(prefix) // which newPath has accepted
			withdraw = append(withdraw, &apiutil.Path{Family: familyOf(prefix), Nlri: nlri, Withdrawal: true})
		}
	}
	for _, path := range slices.Concat(withdraw, announce) {
		p.routes[prefixOf(path.Nlri)] = bgp.Route{} // until the library has accepted all of them
	}
	if len(withdraw) > 0 {
		if err := p.instance.lib.DeletePath(apiutil.DeletePathRequest{Paths: withdraw}); err != nil {
			return fmt.Errorf("withdraw: %w", err)
		}
	}
	if len(announce) > 0 {
		if _, err := p.instance.lib.AddPath(apiutil.AddPathRequest{Paths: announce}); err != nil {
			return fmt.Errorf("announce: %w", err)
		}
	}
	p.routes = wanted
	return invalid
}
