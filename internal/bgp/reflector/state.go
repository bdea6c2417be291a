// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bgp"
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
	for _, in := range r.table.clients {
		for prefix, rr := range in.routes {
			if !rr.accepted {
				continue
			}
			at := path{prefix, rr.NextHop}
			route := routes[at]
			if route == nil {
				route = &Route{Prefix: prefix, NextHop: rr.NextHop, Since: rr.since, Attributes: rr.passed}
				routes[at] = route
			}
			if rr.since.Before(route.Since) {
				route.Since, route.Attributes = rr.since, rr.passed
			}
			route.Clients = append(route.Clients, in.Address)
			if rr.stale {
				route.Stale = append(route.Stale, in.Address)
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
	if !p.ended() {
		p.session.Describe(&s)
		s.RoutesReceived = uint64(len(p.routes))
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
