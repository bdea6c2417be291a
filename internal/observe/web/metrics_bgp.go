// SPDX-License-Identifier: Apache-2.0

package web

import (
	"slices"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
)

// announcements are the prefixes that are announced, or would be.
func (s *scrape) announcements(all []observe.Announcement) {
	for _, a := range all {
		m := s.with("prefix", a.Prefix.String())
		m.flag("fairlead_bgp_route_announced", "1 while the prefix is announced.", a.Announced)
		m.flag("fairlead_bgp_route_leaving", "1 while the route carries GRACEFUL_SHUTDOWN, before it is withdrawn.", a.GracefulShutdown)
		m.count("fairlead_bgp_route_peers", "Peers to which this node announces the prefix.", len(a.Peers))
		m.counter("fairlead_bgp_route_withdrawals_total", "Withdrawals of the prefix.", a.Withdrawals)
	}
}

// hook is the program of routes.hook; nil with BGP.
func (s *scrape) hook(h *observe.RouteHook) {
	if h == nil {
		return
	}
	m := s.with()
	m.flag("fairlead_route_hook_up", "1 while the program of routes.hook fails for no prefix. With routes.hook only, like all fairlead_route_hook metrics.", h.Reason == "")
	m.count("fairlead_route_hook_pending", "Prefixes whose route isn't yet as it is wanted: the program has to be called, is running, or has failed.", h.Pending)
	m.counter("fairlead_route_hook_failures_total", "Calls of the program that failed.", h.Failures)
}

// byAddress has the labels of an agent's peers, each of which has an address of its
// own.
func byAddress(p bgp.PeerState) []string { return []string{"peer", p.Address.String()} }

// byRouterID has the labels of a reflector's peers: several clients may have one
// address. Of routers the id is known only while they have a session; it stays empty.
func byRouterID(p bgp.PeerState) []string {
	id := ""
	if p.Dynamic && p.RouterID.IsValid() {
		id = p.RouterID.String()
	}
	return []string{"peer", p.Address.String(), "router_id", id}
}

// peers are the sessions with all peers, and the messages that were exchanged.
func (s *scrape) peers(all []bgp.PeerState, labels func(bgp.PeerState) []string) {
	for _, p := range all {
		m := s.with(labels(p)...)
		m.flag("fairlead_bgp_session_up", "1 while the session with the peer is established.", p.State == bgp.Established)
		m.count("fairlead_bgp_session_state",
			"The session's state as in BGP4-MIB (RFC 4273): 1 idle, 2 connect, 3 active, 4 opensent, 5 openconfirm, 6 established.", stateNumber(p.State))
		m.counter("fairlead_bgp_session_flaps_total", "Established sessions that ended.", p.Flaps)
		m.gauge("fairlead_bgp_session_routes_announced", "Routes that are announced to the peer.", float64(p.RoutesAnnounced))
		m.gauge("fairlead_bgp_session_routes_omitted",
			"Routes that are not announced to the peer, because it doesn't support their family or has no next hop for it.", float64(p.OmittedRoutes))
		m.gauge("fairlead_bgp_session_routes_received", "Routes that the peer announces.", float64(p.RoutesReceived))
		if p.BFD != "" {
			m.flag("fairlead_bgp_bfd_up", "1 while the BFD session with the peer is up. Absent without BFD.", p.BFD == bgp.BFDUp)
			m.counter("fairlead_bgp_bfd_flaps_total", "Transitions of the BFD session to down. Absent without BFD.", p.BFDFlaps)
		}
		messages := func(direction string, total, updates uint64) {
			for kind, n := range map[string]uint64{"update": updates, "other": total - min(updates, total)} {
				s.with(append(labels(p), "direction", direction, "type", kind)...).counter("fairlead_bgp_messages_total",
					"Messages exchanged with the peer since the agent started: update, or another type (open, keepalive, notification, route refresh).", n)
			}
		}
		messages("received", p.MessagesReceived, p.UpdatesReceived)
		messages("sent", p.MessagesSent, p.UpdatesSent)
	}
}

// stateNumber is a state's number in bgpPeerState of RFC 4273.
func stateNumber(s bgp.SessionState) int {
	return 1 + slices.Index([]bgp.SessionState{
		bgp.Idle, bgp.Connect, bgp.Active, bgp.OpenSent, bgp.OpenConfirm, bgp.Established,
	}, s)
}

// reflectorMetrics collects a route reflector's metrics.
func reflectorMetrics(r observe.Reflector) collector {
	return func(s *scrape) {
		routes := r.Routes()
		s.peers(routes.Peers, byRouterID)
		s.reflected(routes.Announcements)
		clients := 0
		for _, p := range routes.Peers {
			if p.Dynamic && p.State == bgp.Established {
				clients++
			}
		}
		m := s.with()
		m.count("fairlead_reflector_clients", "Clients with an established session.", clients)
		m.flag("fairlead_reflector_ready",
			"1 once the clients known before the restart are back, or their time is over, and routers may get routes.", r.ClientsBack())
		m.counter("fairlead_reflector_refused_total",
			"Connections that were refused: outside of the client ranges, beyond the limit of a range, or without identification.", r.Refused())
	}
}

// reflected are the prefixes that are passed on: announcements sorted by prefix, one
// for each next hop.
func (s *scrape) reflected(all []observe.Announcement) {
	for len(all) > 0 {
		prefix, hops, clients := all[0].Prefix, 0, 0
		for ; hops < len(all) && all[hops].Prefix == prefix; hops++ {
			clients += len(all[hops].From)
		}
		all = all[hops:]
		m := s.with("prefix", prefix.String())
		m.count("fairlead_reflector_route_next_hops", "Distinct next hops of the prefix that are sent to routers.", hops)
		m.count("fairlead_reflector_route_clients", "Clients that announce the prefix.", clients)
	}
}
