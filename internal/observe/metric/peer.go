// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
)

// Peers collects what is known of BGP peers, for those who are no agent: a route
// reflector has the same metrics. The function may be called at any time.
func Peers(states func() []bgp.PeerState) prometheus.Collector {
	return peers{states: states, subjects: []collectable{sessions(), messages()}}
}

// peers are the subjects of peers, without an agent.
type peers struct {
	states   func() []bgp.PeerState
	subjects []collectable
}

// Describe implements prometheus.Collector.
func (p peers) Describe(to chan<- *prometheus.Desc) {
	for _, s := range p.subjects {
		s.describe(to)
	}
}

// Collect implements prometheus.Collector.
func (p peers) Collect(to chan<- prometheus.Metric) {
	now := &look{Reading: observe.Reading{Routes: observe.Routes{Peers: p.states()}}}
	for _, s := range p.subjects {
		s.collect(now, to)
	}
}

// sessions are those with the peers.
func sessions() collectable {
	return subject[bgp.PeerState]{
		labels: []string{"peer"},
		things: func(l *look) []bgp.PeerState { return l.Routes.Peers },
		values: func(p bgp.PeerState) []string { return []string{p.Address.String()} },
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
func messages() collectable {
	return subject[traffic]{
		labels: []string{"peer", "direction", "type"},
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
		values: func(t traffic) []string { return []string{t.peer.Address.String(), t.direction, t.kind} },
		metrics: []metric[traffic]{
			counter("fairlead_bgp_messages_total", "Messages exchanged with the peer since the agent started: update, or another type (open, keepalive, notification, route refresh).",
				func(t traffic) float64 { return float64(t.messages) }),
		},
	}.prepared()
}
