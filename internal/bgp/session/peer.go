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
	instance, err := Start(ctx, p.local, func(Change) {}, func(netip.Addr) {}, p.log)
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
	return s, p.instance.begin(ctx, s, apiPeer(&p.local, &p.config, s.key))
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

// asTrans replaces an ASN of 32 bits in a field of 16 (RFC 6793 §9).
const asTrans = 23456

// newPath is a route, whose next hop is set, as a peer gets it: an external peer with
// the ASN prepended, an internal one with the local preference.
func newPath(route *bgp.Route, asn uint32, external bool) (*apiutil.Path, error) {
	nlri, err := wire.NewIPAddrPrefix(route.Prefix)
	if err != nil {
		return nil, fmt.Errorf("route %s: %w", route.Prefix, err)
	}
	hop, err := newNextHop([]wire.PathNLRI{{NLRI: nlri}}, route.NextHop)
	if err != nil {
		return nil, fmt.Errorf("route %s: next hop %s: %w", route.Prefix, route.NextHop, err)
	}
	attrs := append([]wire.PathAttributeInterface{wire.NewPathAttributeOrigin(wire.BGP_ORIGIN_ATTR_TYPE_IGP), hop},
		transitive(&route.Attributes, asn)...)
	if route.MED != nil {
		attrs = append(attrs, wire.NewPathAttributeMultiExitDisc(*route.MED))
	}
	switch {
	case !external && route.GracefulShutdown:
		attrs = append(attrs, wire.NewPathAttributeLocalPref(0))
	case !external && route.LocalPreference != nil:
		attrs = append(attrs, wire.NewPathAttributeLocalPref(*route.LocalPreference))
	case external && route.Prepend > 0:
		// The library adds the ASN once more.
		asns := slices.Repeat([]uint32{asn}, route.Prepend)
		attrs = append(attrs, wire.NewPathAttributeAsPath([]wire.AsPathParamInterface{
			wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SEQ, asns)}))
	}
	return &apiutil.Path{Family: familyOf(route.Prefix), Nlri: nlri, Attrs: attrs}, nil
}

// newNextHop is the next hop of paths of one family: in MP_REACH_NLRI, unless all is IPv4
// (RFC 4760 §3, RFC 8950).
func newNextHop(paths []wire.PathNLRI, hop netip.Addr) (wire.PathAttributeInterface, error) {
	family := familyOf(prefixOf(paths[0].NLRI))
	if family == wire.RF_IPv4_UC && hop.Is4() {
		return wire.NewPathAttributeNextHop(hop)
	}
	return wire.NewPathAttributeMpReachNLRI(family, paths, hop)
}

// familyOf is the family of unicast routes to a prefix.
func familyOf(prefix netip.Prefix) wire.Family {
	if prefix.Addr().Is4() {
		return wire.RF_IPv4_UC
	}
	return wire.RF_IPv6_UC
}

// transitive are the communities of all kinds.
func transitive(a *bgp.Attributes, asn uint32) (attrs []wire.PathAttributeInterface) {
	var communities []uint32
	for _, c := range a.Communities {
		communities = append(communities, uint32(c))
	}
	if a.GracefulShutdown {
		communities = append(communities, uint32(bgp.GracefulShutdown)) // which Communities doesn't have
	}
	if len(communities) > 0 {
		attrs = append(attrs, wire.NewPathAttributeCommunities(communities))
	}
	if len(a.LargeCommunities) > 0 {
		large := make([]*wire.LargeCommunity, len(a.LargeCommunities))
		for i, c := range a.LargeCommunities {
			large[i] = wire.NewLargeCommunity(c[0], c[1], c[2])
		}
		attrs = append(attrs, wire.NewPathAttributeLargeCommunities(large))
	}
	if a.LinkBandwidth > 0 {
		as := uint16(asTrans)
		if asn <= 1<<16-1 {
			as = uint16(asn)
		}
		attrs = append(attrs, wire.NewPathAttributeExtendedCommunities([]wire.ExtendedCommunityInterface{
			wire.NewLinkBandwidthExtended(as, a.LinkBandwidth)}))
	}
	return attrs
}

// path identifies a path to a prefix: by the identifier of RFC 7911, or 0.
type path struct {
	prefix netip.Prefix
	id     uint32
}

func pathOf(p wire.PathNLRI) path { return path{prefixOf(p.NLRI), p.ID} }

// pathsOf are the paths of both families in an UPDATE.
func pathsOf(update *wire.BGPUpdate) (withdrawn, announced []wire.PathNLRI) {
	withdrawn, announced = update.WithdrawnRoutes, update.NLRI
	for _, a := range update.PathAttributes {
		switch a := a.(type) {
		case *wire.PathAttributeMpUnreachNLRI:
			withdrawn = append(withdrawn, a.Value...)
		case *wire.PathAttributeMpReachNLRI:
			announced = append(announced, a.Value...)
		}
	}
	return withdrawn, announced
}

// prefixOf is the prefix of a unicast route; the zero Prefix of others.
func prefixOf(nlri wire.NLRI) netip.Prefix {
	if p, ok := nlri.(*wire.IPAddrPrefix); ok {
		return p.Prefix
	}
	return netip.Prefix{}
}

// nextHopOf is the next hop of an UPDATE.
func nextHopOf(attrs []wire.PathAttributeInterface) netip.Addr {
	for _, a := range attrs {
		switch a := a.(type) {
		case *wire.PathAttributeNextHop:
			return a.Value
		case *wire.PathAttributeMpReachNLRI:
			return a.Nexthop
		}
	}
	return netip.Addr{}
}
