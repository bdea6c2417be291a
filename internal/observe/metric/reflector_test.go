// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
)

// reflecting is a reflector with one router, and two clients behind one address.
func reflecting() observe.Reflector {
	address := netip.MustParseAddr
	node := address("10.0.2.4")
	return observe.Reflector{
		Begun:   func() bool { return true },
		Refused: func() uint64 { return 7 },
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
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newReflectorCollector(reflecting()))
	want := `
# HELP fairlead_bgp_session_up 1 while the session with the peer is established.
# TYPE fairlead_bgp_session_up gauge
fairlead_bgp_session_up{peer="10.0.2.1",router_id=""} 1
fairlead_bgp_session_up{peer="10.0.2.4",router_id="10.0.2.11"} 1
fairlead_bgp_session_up{peer="10.0.2.4",router_id="10.0.2.12"} 0
# HELP fairlead_reflector_clients Clients with an established session.
# TYPE fairlead_reflector_clients gauge
fairlead_reflector_clients 1
# HELP fairlead_reflector_refused_total Connections that were refused: from no range of clients, from one that is full, or of callers who don't say who they are.
# TYPE fairlead_reflector_refused_total counter
fairlead_reflector_refused_total 7
# HELP fairlead_reflector_route_next_hops Different next hops with which the prefix is passed on.
# TYPE fairlead_reflector_route_next_hops gauge
fairlead_reflector_route_next_hops{prefix="10.1.1.1/32"} 2
`
	err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fairlead_bgp_session_up",
		"fairlead_reflector_clients", "fairlead_reflector_refused_total", "fairlead_reflector_route_next_hops")
	if err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
