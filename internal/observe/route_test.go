// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/test/golden"
)

// announced are routes in every condition, and peers in every one.
func announced() observe.Routes {
	router, router6, other := netip.MustParseAddr("10.0.2.1"), netip.MustParseAddr("fd00:2::1"), netip.MustParseAddr("10.0.2.2")
	many := []netip.Addr{router, other, netip.MustParseAddr("10.0.2.3"), netip.MustParseAddr("10.0.2.4"), router6}
	at := started.Add(50 * time.Minute)
	return observe.Routes{
		Enabled: true, ASN: 65021, RouterID: netip.MustParseAddr("10.0.2.11"),
		Announcements: []observe.Announcement{
			{Prefix: netip.MustParsePrefix("10.1.1.1/32"), Services: []string{"web", "echo"}, Announced: true, Since: at,
				Peers: []netip.Addr{router, router6}},
			{Prefix: netip.MustParsePrefix("10.1.2.0/24"), Services: []string{"api", "b", "c", "d"}, Announced: true, Since: at, Withdrawals: 2,
				Peers: many, NextHop: netip.MustParseAddr("10.0.2.100"), Attributes: []string{"65021:100", "local-pref 200", "med 10", "prepend 2"}},
			{Prefix: netip.MustParsePrefix("10.1.3.1/32"), Services: []string{"old"}, Announced: true, Since: at, GracefulShutdown: true, Reason: "old: drained",
				Peers: []netip.Addr{router}},
			{Prefix: netip.MustParsePrefix("10.1.4.1/32"), Services: []string{"lonely"}, Announced: true, Since: at},
			{Prefix: netip.MustParsePrefix("fd00:10:1:1::1/128"), Services: []string{"web6"}, Since: at, Withdrawals: 1,
				Reason: "web6: 0 of 3 backends healthy, 1 wanted"},
			{Prefix: netip.MustParsePrefix("fd00:10:1:1::2/128"), Services: []string{"new"}, Reason: "no service is programmed"},
		},
		Peers: []bgp.PeerState{
			{Address: router, ASN: 65000, RouterID: router, State: bgp.Established, Since: at, HoldTime: 3 * time.Second,
				BFD: bgp.BFDUp, BFDSince: at, MessagesReceived: 1001, MessagesSent: 1005, UpdatesReceived: 2, UpdatesSent: 7, RoutesAnnounced: 4},
			{Address: other, ASN: 65000, State: bgp.Idle, Reason: "connection refused", NextTry: started.Add(time.Hour + 3400*time.Millisecond)},
			{Address: netip.MustParseAddr("10.0.2.3"), ASN: 65000, State: bgp.Idle, Since: at, Reason: "received NOTIFICATION: bad peer AS", Flaps: 3,
				BFD: bgp.BFDDown, BFDReason: "the peer is silent", BFDFlaps: 2},
			{Address: netip.MustParseAddr("10.0.2.4"), ASN: 65021, State: bgp.OpenSent},
			{Address: netip.MustParseAddr("10.0.2.5"), ASN: 65021, State: bgp.Established, Since: at,
				OmittedRoutes: 2, OmittedReason: "the peer takes no IPv6 routes"},
			{Address: router6, ASN: 65000, State: bgp.Active, Reason: "waiting for the peer to connect"},
		},
	}
}

func TestRouteTable(t *testing.T) {
	golden.File(t, "testdata/routes.txt", observe.FormatRoutes(announced(), started.Add(time.Hour)))
	if text := observe.FormatRoutes(observe.Routes{}, started); text != "no routes: the configuration has neither bgp nor routes.hook\n" {
		t.Errorf("without BGP it says %q", text)
	}
}

// The line of top is there only where there is BGP.
func TestTopOfRoutes(t *testing.T) {
	top := observe.Top{Node: "lb1", Time: started, BGP: observe.RouteSummary{ASN: 65021, Peers: 2, RouteCounts: v1alpha1.RouteCounts{Withheld: 1, Sessions: 1}}}
	for _, enabled := range []bool{true, false} {
		top.BGP.Enabled = enabled
		text := observe.FormatTop(top)
		if strings.Contains(text, "bgp  AS 65021, 1 of 2 peers established, 0 of 1 routes announced\n") != enabled {
			t.Errorf("enabled is %t: %q", enabled, text)
		}
	}
}
