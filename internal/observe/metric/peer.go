// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"slices"

	"fairlead.io/fairlead/internal/bgp"
)

// distinction is what tells peers apart: labels and their values.
type distinction struct {
	labels []string
	values func(bgp.PeerState) []string
}

// byAddress is for agents, each of whose peers has an address of its own.
func byAddress() distinction {
	return distinction{
		labels: []string{"peer"},
		values: func(p bgp.PeerState) []string { return []string{p.Address.String()} },
	}
}

// byRouterID is for reflectors: several clients may have one address. Of routers
// the id is known only while they have a session; it stays empty.
func byRouterID() distinction {
	return distinction{
		labels: []string{"peer", "router_id"},
		values: func(p bgp.PeerState) []string {
			id := ""
			if p.Dynamic && p.RouterID.IsValid() {
				id = p.RouterID.String()
			}
			return []string{p.Address.String(), id}
		},
	}
}

// sessions are those with the peers.
func sessions(by distinction) collectable {
	return subject[bgp.PeerState]{
		labels: by.labels,
		things: func(l *look) []bgp.PeerState { return l.Routes.Peers },
		values: by.values,
		metrics: []metric[bgp.PeerState]{
			gauge("fairlead_bgp_session_up", "1 while the session with the peer is established.",
				func(p bgp.PeerState) float64 { return truth(p.State == bgp.Established) }),
			gauge("fairlead_bgp_session_state", "The session's state as in BGP4-MIB (RFC 4273): 1 idle, 2 connect, 3 active, 4 opensent, 5 openconfirm, 6 established.",
				func(p bgp.PeerState) float64 { return stateNumber(p.State) }),
			counter("fairlead_bgp_session_flaps_total", "Established sessions that ended.",
				func(p bgp.PeerState) float64 { return float64(p.Flaps) }),
			gauge("fairlead_bgp_session_routes_announced", "Routes that the peer has been told of and not been told to forget.",
				func(p bgp.PeerState) float64 { return float64(p.RoutesAnnounced) }),
			gauge("fairlead_bgp_session_routes_omitted", "Routes that the peer is not told of, as it doesn't take their family or there is no next hop for it.",
				func(p bgp.PeerState) float64 { return float64(p.OmittedRoutes) }),
			gauge("fairlead_bgp_session_routes_received", "Routes that the peer has told of.",
				func(p bgp.PeerState) float64 { return float64(p.RoutesReceived) }),
			gauge("fairlead_bgp_bfd_up", "1 while the BFD session with the peer is up. Without BFD there is none.",
				func(p bgp.PeerState) float64 { return watched(p, truth(p.BFD == bgp.BFDUp)) }),
			counter("fairlead_bgp_bfd_flaps_total", "How often the BFD session went down. Without BFD there is none.",
				func(p bgp.PeerState) float64 { return watched(p, float64(p.BFDFlaps)) }),
		},
	}.prepared()
}

// stateNumber is a state's number in bgpPeerState of RFC 4273.
func stateNumber(s bgp.SessionState) float64 {
	return float64(1 + slices.Index([]bgp.SessionState{
		bgp.Idle, bgp.Connect, bgp.Active, bgp.OpenSent, bgp.OpenConfirm, bgp.Established,
	}, s))
}

// watched is a value of peers with BFD.
func watched(p bgp.PeerState, value float64) float64 {
	if p.BFD == "" {
		return none()
	}
	return value
}

// traffic is one kind of messages in one direction.
type traffic struct {
	peer            bgp.PeerState
	direction, kind string
	messages        uint64
}

// messages are those exchanged with the peers.
func messages(by distinction) collectable {
	return subject[traffic]{
		labels: append(slices.Clone(by.labels), "direction", "type"),
		things: func(l *look) []traffic {
			var all []traffic
			for _, p := range l.Routes.Peers {
				all = append(all,
					traffic{p, "received", "update", p.UpdatesReceived},
					traffic{p, "received", "other", p.MessagesReceived - min(p.UpdatesReceived, p.MessagesReceived)},
					traffic{p, "sent", "update", p.UpdatesSent},
					traffic{p, "sent", "other", p.MessagesSent - min(p.UpdatesSent, p.MessagesSent)})
			}
			return all
		},
		values: func(t traffic) []string { return append(by.values(t.peer), t.direction, t.kind) },
		metrics: []metric[traffic]{
			counter("fairlead_bgp_messages_total", "Messages exchanged with the peer since the agent started: update, or another type (open, keepalive, notification, route refresh).",
				func(t traffic) float64 { return float64(t.messages) }),
		},
	}.prepared()
}
