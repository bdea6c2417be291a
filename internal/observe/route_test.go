// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
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
			{Address: netip.MustParseAddr("10.0.2.3"), ASN: 65000, State: bgp.Idle, Since: at, Reason: "peer says: bad peer AS", Flaps: 3,
				BFD: bgp.BFDDown, BFDReason: "the peer is silent", BFDFlaps: 2},
			{Address: netip.MustParseAddr("10.0.2.4"), ASN: 65021, State: bgp.OpenSent},
			{Address: netip.MustParseAddr("10.0.2.5"), ASN: 65021, State: bgp.Established, Since: at,
				OmittedRoutes: 2, OmittedReason: "the peer takes no IPv6 routes"},
			{Address: router6, ASN: 65000, State: bgp.Active, Reason: "waiting for the peer to connect"},
		},
	}
}

func TestRouteTable(t *testing.T) {
	var out bytes.Buffer
	golden(t, "routes.txt", &out, observe.WriteRoutes(&out, announced(), started.Add(time.Hour)))

	out.Reset()
	if err := observe.WriteRoutes(&out, observe.Routes{}, started); err != nil || out.String() != "no BGP: the configuration has no bgp section\n" {
		t.Errorf("without BGP it says %q, error %v", out.String(), err)
	}
}

// What the socket answers is what the agent says, and sums of it are in the
// status and in top.
func TestRoutes(t *testing.T) {
	w := newWorld(t)
	said := announced()
	w.routes.Store(&said)
	body, err := observe.Dial(w.socket).Routes(t.Context())
	got := decode[observe.Routes](t, body, err)
	if diff := cmp.Diff(said.Peers, got.Peers, exact); diff != "" {
		t.Error(diff)
	}
	for i, a := range got.Announcements {
		if want := said.Announcements[i]; a.Prefix != want.Prefix || a.Condition() != want.Condition() {
			t.Errorf("announcement %+v, want %+v", a, want)
		}
	}
	want := observe.RouteCounts{Enabled: true, ASN: 65021, Peers: 6, Established: 2, Routes: 6, Announced: 4}
	if got := w.status().BGP; got != want {
		t.Errorf("the status counts %+v, want %+v", got, want)
	}
	body, err = observe.Dial(w.socket).Top(t.Context(), 1)
	if got := decode[observe.Top](t, body, err).BGP; got != want {
		t.Errorf("top counts %+v, want %+v", got, want)
	}
}

// Programs that read the JSON needn't tell a list that is missing from an empty
// one.
func TestRoutesHaveLists(t *testing.T) {
	w := newWorld(t)
	for want, said := range map[int]observe.Routes{
		2: {},                                                         // announcements and peers
		4: {Enabled: true, Announcements: []observe.Announcement{{}}}, // peers, and three of the announcement
	} {
		w.routes.Store(&said)
		body, err := observe.Dial(w.socket).Routes(t.Context())
		if err != nil || strings.Contains(string(body), "null") {
			t.Errorf("%+v is %s, error %v", said, body, err)
		}
		if lists := strings.Count(string(body), "[]"); lists != want {
			t.Errorf("%d empty lists in %s, want %d", lists, body, want)
		}
		if a := said.Announcements; len(a) > 0 && a[0].Services != nil {
			t.Error("showing the routes has changed them")
		}
	}
}

// The line of top is there only where there is BGP.
func TestTopOfRoutes(t *testing.T) {
	top := observe.Top{Node: "lb1", Time: started, BGP: observe.RouteCounts{ASN: 65021, Peers: 2, Established: 1, Routes: 1}}
	for _, enabled := range []bool{true, false} {
		top.BGP.Enabled = enabled
		var out bytes.Buffer
		if err := observe.WriteTop(&out, top); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("bgp  %s\n", "AS 65021, 1 of 2 peers established, 0 of 1 routes announced")
		if strings.Contains(out.String(), line) != enabled {
			t.Errorf("enabled is %t: %q", enabled, out.String())
		}
	}
}
