// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
)

// Route is a prefix with one of its next hops, as routers get it.
type Route struct {
	Prefix  netip.Prefix
	NextHop netip.Addr
	// Clients announce it; Stale clients are lost but may be restarting.
	Clients, Stale []netip.Addr
	// Since is when the first of them announced it, Attributes are that one's.
	Since      time.Time
	Attributes bgp.Attributes
}

// Routes returns the reflected routes, by prefix and next hop.
func (r *Reflector) Routes() []Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	type path struct {
		prefix netip.Prefix
		hop    netip.Addr
	}
	routes := make(map[path]*Route)
	for _, p := range r.clients {
		received, stale := p.received()
		for prefix, rr := range received {
			if !rr.Accepted {
				continue
			}
			at := path{prefix, rr.NextHop}
			route := routes[at]
			if route == nil {
				route = &Route{Prefix: prefix, NextHop: rr.NextHop, Since: rr.Since, Attributes: rr.Attributes}
				routes[at] = route
			}
			if rr.Since.Before(route.Since) {
				route.Since, route.Attributes = rr.Since, rr.Attributes
			}
			route.Clients = append(route.Clients, p.Address)
			if stale[prefix] {
				route.Stale = append(route.Stale, p.Address)
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

// received returns the routes of a client's session, and stale ones of the former
// session while they are kept.
func (p *client) received() (routes map[netip.Prefix]session.ReceivedRoute, stale map[netip.Prefix]bool) {
	routes, stale = make(map[netip.Prefix]session.ReceivedRoute), make(map[netip.Prefix]bool)
	if p.kept != nil {
		routes = p.kept.AdjRIBIn()
		for prefix := range routes {
			stale[prefix] = true
		}
	}
	if p.session != nil {
		for prefix, route := range p.session.AdjRIBIn() {
			routes[prefix] = route
			delete(stale, prefix)
		}
	}
	return routes, stale
}

// Peers returns routers and clients by address and router ID.
func (r *Reflector) Peers() []bgp.PeerState {
	r.mu.Lock()
	peers := make([]bgp.PeerState, 0, len(r.routers)+len(r.clients))
	for _, router := range r.routers {
		peers = append(peers, router.State())
	}
	for _, p := range r.clients {
		peers = append(peers, p.describe())
	}
	r.mu.Unlock()
	for i := range peers {
		r.bfd.Describe(&peers[i])
	}
	slices.SortFunc(peers, func(a, b bgp.PeerState) int {
		return cmp.Or(a.Address.Compare(b.Address), a.RouterID.Compare(b.RouterID))
	})
	return peers
}

func (p *client) describe() bgp.PeerState {
	s := p.status
	if p.session != nil {
		p.session.Count(&s)
	}
	if p.status.State == bgp.Established {
		s.Reason = ""
		p.session.Describe(&s)
	}
	return s
}

// Ready reports whether routers may be connected: false while clients from before the
// restart are missing.
func (r *Reflector) Ready() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

// Refused counts refused connections.
func (r *Reflector) Refused() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}
