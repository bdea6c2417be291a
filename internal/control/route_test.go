// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
)

// The socket returns the agent's routes, and the status and top have their sums.
func TestRoutes(t *testing.T) {
	a := startAgent(t)
	at := netip.MustParseAddr
	router := at("10.0.2.1")
	said := observe.Routes{
		Enabled: true, ASN: 65021, RouterID: at("10.0.2.11"),
		Announcements: []observe.Announcement{
			{Prefix: netip.MustParsePrefix("10.1.1.1/32"), Services: []string{"web"}, Announced: true, Since: started, Peers: []netip.Addr{router}},
			{Prefix: netip.MustParsePrefix("fd00::1/128"), Services: []string{"dns"}, Reason: "no service is programmed"},
		},
		Peers: []bgp.PeerState{
			{Address: router, ASN: 65000, RouterID: router, State: bgp.Established, Since: started, HoldTime: 3 * time.Second, BFD: bgp.BFDUp},
			{Address: at("fd00:2::1"), ASN: 65000, State: bgp.Idle, Reason: "connection refused", NextTry: started.Add(time.Hour)},
		},
	}
	a.Announced.Store(&said)
	got := decode[observe.Routes](a.client().Routes(t.Context()))(t)
	if diff := cmp.Diff(said.Peers, got.Peers, exact); diff != "" {
		t.Error(diff)
	}
	for i, a := range got.Announcements {
		if want := said.Announcements[i]; a.Prefix != want.Prefix || a.Condition() != want.Condition() {
			t.Errorf("announcement %+v, want %+v", a, want)
		}
	}
	want := observe.RouteSummary{Enabled: true, ASN: 65021, Peers: 2, RouteCounts: v1alpha1.RouteCounts{Announced: 1, Withheld: 1, Sessions: 1}}
	if got := a.status().BGP; got != want {
		t.Errorf("the status counts %+v, want %+v", got, want)
	}
	if got := decode[observe.Top](a.client().Top(t.Context(), 1))(t).BGP; got != want {
		t.Errorf("top counts %+v, want %+v", got, want)
	}
}

// Programs that read the JSON needn't distinguish a missing list from an empty
// one.
func TestRoutesWithoutNull(t *testing.T) {
	a := startAgent(t)
	for want, said := range map[int]observe.Routes{
		2: {},                                                         // announcements and peers
		4: {Enabled: true, Announcements: []observe.Announcement{{}}}, // peers, and three of the announcement
	} {
		a.Announced.Store(&said)
		body, err := a.client().Routes(t.Context())
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
