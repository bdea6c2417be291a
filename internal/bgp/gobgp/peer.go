// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"fairlead.io/fairlead/internal/bgp"
)

// Peer is an instance of the library that speaks with one peer, in one session
// after another. Each peer has an instance of its own: it sees routes that were
// made for it, and can hold nobody else up.
type Peer struct {
	local  bgp.Local
	peer   bgp.Peer
	lib    *server.BgpServer
	accept chan<- net.Conn
	stop   context.CancelFunc
	// active has an element when the library waits for a connection.
	active chan struct{}
	// known says that the library has the peer: from a session's begin to the next.
	known bool

	mu sync.Mutex
	// routes are those that the library has, or may have: unsure says that it refused
	// a change, of which it may have made a part.
	routes map[netip.Prefix]bgp.Route
	unsure bool
}

// NewPeer starts an instance without routes.
func NewPeer(ctx context.Context, local bgp.Local, peer bgp.Peer, log *slog.Logger) (*Peer, error) {
	lib, accept, err := launch(ctx, local, log)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(context.Background())
	p := &Peer{
		local: local, peer: peer, lib: lib, accept: accept, stop: stop,
		active: make(chan struct{}, 1), routes: make(map[netip.Prefix]bgp.Route),
	}
	err = lib.WatchEvent(watching, server.WatchEventMessageCallbacks{OnPeerUpdate: p.noticed}, server.WatchPeer())
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("bgp: %w", err)
	}
	return p, nil
}

// noticed sees the library's peer change its state.
func (p *Peer) noticed(event *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
	if event.Peer.State.SessionState == wire.BGP_FSM_ACTIVE {
		select {
		case p.active <- struct{}{}:
		default:
		}
	}
}

// Close ends the instance; a session that it had has been ended before.
func (p *Peer) Close() {
	p.stop()
	p.lib.Stop()
}

// Begin begins a session over a connection, which it takes over. There is no other
// session. The library's peer is made anew each time: one that has had a session
// waits for seconds before it takes another connection.
func (p *Peer) Begin(ctx context.Context, tcp *net.TCPConn, handshake Handshake) (*Session, error) {
	session := newSession(tcp, p.local, p.peer, handshake)
	if err := p.renew(ctx); err != nil {
		tcp.Close()
		return nil, err
	}
	select {
	case p.accept <- session.conn:
		return session, nil
	case <-ctx.Done():
		tcp.Close()
		return nil, ctx.Err()
	}
}

// renew makes the library's peer, and waits until it takes a connection.
func (p *Peer) renew(ctx context.Context) error {
	if p.known {
		err := p.lib.DeletePeer(ctx, &api.DeletePeerRequest{Address: p.peer.Address.String()})
		if err != nil {
			return fmt.Errorf("gobgp: %w", err)
		}
	}
	select { // of the one before
	case <-p.active:
	default:
	}
	if err := p.lib.AddPeer(ctx, &api.AddPeerRequest{Peer: apiPeer(&p.local, &p.peer)}); err != nil {
		return fmt.Errorf("gobgp: %w", err)
	}
	p.known = true
	select {
	case <-p.active:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Announce makes routes, which have next hops and different prefixes, all that the
// peer is told; only differences reach it. Between a session's OPEN and its being
// established, only the handshake may call it: the library forgets what changes
// in the moment in which the session becomes established.
func (p *Peer) Announce(routes []bgp.Route) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var withdraw, announce []*apiutil.Path
	var errs []error
	wanted := make(map[netip.Prefix]bgp.Route, len(routes))
	for _, route := range routes {
		if old, had := p.routes[route.Prefix]; !had || !old.Equal(&route) || p.unsure {
			path, err := p.path(&route)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			announce = append(announce, path)
		}
		wanted[route.Prefix] = route
	}
	for prefix, route := range p.routes {
		if _, still := wanted[prefix]; still {
			continue
		}
		path, err := p.path(&route)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		path.Withdrawal = true
		withdraw = append(withdraw, path)
	}
	err := p.apply(withdraw, announce)
	if p.unsure = err != nil; p.unsure {
		maps.Copy(p.routes, wanted)
	} else {
		p.routes = wanted
	}
	return errors.Join(append(errs, err)...)
}

// path is a route as the peer sees it.
func (p *Peer) path(route *bgp.Route) (*apiutil.Path, error) {
	return pathOf(route, p.local.ASN, p.peer.External(p.local))
}

// apply tells the library what changed.
func (p *Peer) apply(withdraw, announce []*apiutil.Path) error {
	if len(withdraw) > 0 {
		if err := p.lib.DeletePath(apiutil.DeletePathRequest{Paths: withdraw}); err != nil {
			return fmt.Errorf("withdraw: %w", err)
		}
	}
	if len(announce) > 0 {
		if _, err := p.lib.AddPath(apiutil.AddPathRequest{Paths: announce}); err != nil {
			return fmt.Errorf("announce: %w", err)
		}
	}
	return nil
}
