// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
)

// reflecting is a reflector with one router, and two clients behind one address.
func reflecting() observe.Reflector {
	address := netip.MustParseAddr
	node := address("10.0.2.4")
	return observe.Reflector{
		ClientsBack: func() bool { return true },
		Refused:     func() uint64 { return 7 },
		Routes: func() observe.Routes {
			return observe.Routes{
				Peers: []bgp.PeerState{
					{Address: address("10.0.2.1"), RouterID: address("10.0.2.1"), State: bgp.Established, RoutesAnnounced: 2},
					{Address: node, RouterID: address("10.0.2.11"), State: bgp.Established, Dynamic: true, RoutesReceived: 1},
					{Address: node, RouterID: address("10.0.2.12"), State: bgp.Active, Dynamic: true, Flaps: 1},
				},
				Announcements: []observe.Announcement{
					{Prefix: netip.MustParsePrefix("10.1.1.1/32"), NextHop: address("10.0.2.11"), From: []netip.Addr{node}},
					{Prefix: netip.MustParsePrefix("10.1.1.1/32"), NextHop: address("10.0.2.12"), From: []netip.Addr{node}},
				},
			}
		},
	}
}

// Clients of one address have metrics of their own.
func TestReflectorMetrics(t *testing.T) {
	want := `
# HELP fairlead_bgp_session_up 1 while the session with the peer is established.
# TYPE fairlead_bgp_session_up gauge
fairlead_bgp_session_up{peer="10.0.2.1",router_id=""} 1
fairlead_bgp_session_up{peer="10.0.2.4",router_id="10.0.2.11"} 1
fairlead_bgp_session_up{peer="10.0.2.4",router_id="10.0.2.12"} 0
# HELP fairlead_reflector_clients Clients with an established session.
# TYPE fairlead_reflector_clients gauge
fairlead_reflector_clients 1
# HELP fairlead_reflector_refused_total Connections that were refused: outside of the client ranges, beyond the limit of a range, or without identification.
# TYPE fairlead_reflector_refused_total counter
fairlead_reflector_refused_total 7
# HELP fairlead_reflector_route_next_hops Distinct next hops of the prefix that are sent to routers.
# TYPE fairlead_reflector_route_next_hops gauge
fairlead_reflector_route_next_hops{prefix="10.1.1.1/32"} 2
`
	err := testutil.CollectAndCompare(reflectorMetrics(reflecting()), strings.NewReader(want), "fairlead_bgp_session_up",
		"fairlead_reflector_clients", "fairlead_reflector_refused_total", "fairlead_reflector_route_next_hops")
	if err != nil {
		t.Error(err)
	}
}

func TestStateNumbers(t *testing.T) {
	for state, want := range map[bgp.SessionState]int{
		bgp.Idle: 1, bgp.Connect: 2, bgp.Active: 3, bgp.OpenSent: 4, bgp.OpenConfirm: 5, bgp.Established: 6,
	} {
		if got := stateNumber(state); got != want {
			t.Errorf("%s is %v, want %v", state, got, want)
		}
	}
}
