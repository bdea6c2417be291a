// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/gobgp"
)

// Route is a prefix with one of its next hops, as routers are told.
type Route struct {
	Prefix  netip.Prefix
	NextHop netip.Addr
	// Clients announce it; Stale are those of them that are gone and may be
	// restarting.
	Clients, Stale []netip.Addr
	// Since is when the first of them did.
	Since time.Time
	// Attributes are the first one's, for people.
	Attributes []string
}

// Routes returns what is passed on, by prefix and next hop.
func (r *Reflector) Routes() []Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	routes := make(map[place]*Route)
	for _, p := range r.peers {
		for prefix, h := range p.heard() {
			if r.config.Accepts(prefix, h.NextHop) {
				routes[place{prefix, h.NextHop}] = routes[place{prefix, h.NextHop}].with(p.Address, prefix, h)
			}
		}
	}
	list := make([]Route, 0, len(routes))
	for _, route := range routes {
		slices.SortFunc(route.Clients, netip.Addr.Compare)
		slices.SortFunc(route.Stale, netip.Addr.Compare)
		list = append(list, *route)
	}
	slices.SortFunc(list, func(a, b Route) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()), a.NextHop.Compare(b.NextHop))
	})
	return list
}

// place is what routes differ in.
type place struct {
	prefix netip.Prefix
	hop    netip.Addr
}

// with adds a client to a route, which is nil if it is the first.
func (route *Route) with(client netip.Addr, prefix netip.Prefix, h heard) *Route {
	if route == nil {
		route = &Route{Prefix: prefix, NextHop: h.NextHop, Since: h.Since, Attributes: h.Attributes}
	}
	if h.Since.Before(route.Since) {
		route.Since, route.Attributes = h.Since, h.Attributes
	}
	route.Clients = append(route.Clients, client)
	if h.stale {
		route.Stale = append(route.Stale, client)
	}
	return route
}

// heard is a route of a client; stale if it is of a session that is lost.
type heard struct {
	gobgp.Heard
	stale bool
}

// heard is what a client announces: in its session, and in the one before as long
// as the library keeps that.
func (p *peer) heard() map[netip.Prefix]heard {
	all := make(map[netip.Prefix]heard)
	if p.kept != nil {
		for prefix, h := range p.kept.Heard() {
			all[prefix] = heard{h, true}
		}
	}
	if p.link != nil && !p.router {
		for prefix, h := range p.link.Heard() {
			all[prefix] = heard{h, false}
		}
	}
	return all
}

// Peers returns routers and clients by address and router id.
func (r *Reflector) Peers() []bgp.PeerState {
	r.mu.Lock()
	peers := make([]bgp.PeerState, 0, len(r.peers))
	var keys []netip.Addr
	for key, p := range r.peers {
		peers, keys = append(peers, p.shown()), append(keys, key)
	}
	r.mu.Unlock()
	for i := range peers {
		r.complete(keys[i], &peers[i])
	}
	slices.SortFunc(peers, func(a, b bgp.PeerState) int {
		return cmp.Or(a.Address.Compare(b.Address), a.RouterID.Compare(b.RouterID))
	})
	return peers
}

// shown is what the reflector itself knows of a peer.
func (p *peer) shown() bgp.PeerState {
	s := bgp.PeerState{
		Address: p.Address, ASN: p.ASN, Dynamic: !p.router, RouterID: p.id,
		State: p.state, Since: p.since, Reason: p.reason, NextTry: p.again, Flaps: p.flaps,
	}
	if p.state == bgp.Established {
		s.Reason, s.NextTry = "", time.Time{}
	}
	return s
}

// complete adds what the library and BFD know.
func (r *Reflector) complete(key netip.Addr, s *bgp.PeerState) {
	r.library.Describe(r.ctx, key, s)
	if watched, ok := r.watcher.State(s.Address); ok {
		s.BFD, s.BFDSince, s.BFDReason, s.BFDFlaps = watched.State, watched.Since, watched.Reason, watched.Flaps
	}
}

// Begun reports whether routers are told what there is: false while clients of
// the earlier life are waited for.
func (r *Reflector) Begun() bool {
	select {
	case <-r.begun:
		return true
	default:
		return false
	}
}

// Refused counts connections of strangers.
func (r *Reflector) Refused() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}
