// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// "fairlead routes" agrees with a real router about routes and peers, while VIPs
// come and go.
func TestRoutes(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "routes", harness.Routed(t, netlab.ECMPOptions{Router: netlab.FRR}))
	t.Run("established", l.checkPeers)
	t.Run("announced", func(t *testing.T) { l.checkRoutes(t, "lb1", "lb2", "lb3") })
	for _, service := range []string{"web", "echo"} {
		l.Show(t, "lb1", "drain", "service", service)
	}
	t.Run("drained", func(t *testing.T) { l.checkRoutes(t, "lb2", "lb3") })
	t.Run("reason", l.checkReason)
	l.Show(t, "lb1", "undrain", "service", "web")
	t.Run("undrained", func(t *testing.T) { l.checkRoutes(t, "lb1", "lb2", "lb3") })
	l.Show(t, "lb2", "drain", "node")
	t.Run("node drained", func(t *testing.T) { l.checkRoutes(t, "lb1", "lb3") })
	t.Run("router gone", l.checkRouterGone)
}

// Both ends say the same of each session, and of BFD.
func (l *lab) checkPeers(t *testing.T) {
	for _, h := range l.Hosts(netlab.Balancer) {
		var peer bgp.PeerState
		harness.Until(t, h.Name+" has a session with BFD", func() bool {
			peers := l.Routes(t, h.Name).Peers
			if len(peers) != 1 {
				t.Fatalf("%s has %d peers", h.Name, len(peers))
			}
			peer = peers[0]
			return peer.State == bgp.Established && peer.BFD == bgp.BFDUp
		})
		var theirs map[string]struct {
			RemoteAS uint32 `json:"remoteAs"`
			State    string `json:"bgpState"`
			Router   string `json:"remoteRouterId"`
		}
		l.FRR(t, "show bgp neighbors "+l.Address(h.Name).String(), &theirs)
		for name, n := range theirs {
			if name != peer.LocalAddress.String() || n.State != "Established" || n.RemoteAS != l.Routes(t, h.Name).ASN || n.Router != l.Routes(t, h.Name).RouterID.String() {
				t.Errorf("%s: FRR says %+v of %s, the balancer %+v", h.Name, n, name, peer)
			}
		}
		if peer.Address != l.Address("router") || peer.RouterID != l.Address("router") || peer.HoldTime != 3*time.Second ||
			!peer.GracefulRestart || peer.Reason != "" || peer.RoutesAnnounced != 2 || peer.MessagesSent < 4 {
			t.Errorf("%s: peer %+v", h.Name, peer)
		}
	}
}

// checkRoutes waits until the router has routes to the VIP of IPv4 from these
// balancers alone, and compares the routes of all VIPs on router and balancers.
func (l *lab) checkRoutes(t *testing.T, balancers ...string) {
	harness.Until(t, fmt.Sprintf("%s announce %s", balancers, harness.VIP4), func() bool {
		return slices.Equal(harness.ReceivedRoutes(t, l.Lab)[harness.VIP4+"/32"], balancers)
	})
	said := func() map[string][]string {
		all := map[string][]string{}
		for _, h := range l.Hosts(netlab.Balancer) {
			for _, a := range l.Routes(t, h.Name).Announcements {
				if a.Announced && slices.Equal(a.Peers, []netip.Addr{l.Address("router")}) {
					all[a.Prefix.String()] = append(all[a.Prefix.String()], h.Name)
				}
			}
		}
		return all
	}
	if !await.Holds(func() bool { return reflect.DeepEqual(said(), harness.ReceivedRoutes(t, l.Lab)) }) {
		t.Errorf("balancers say %v, the router %v", said(), harness.ReceivedRoutes(t, l.Lab))
	}
}

// lineOf is the first line that begins with a word.
func lineOf(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, word+" ") {
			return line
		}
	}
	return ""
}

// A route that is not announced has a reason.
func (l *lab) checkReason(t *testing.T) {
	for _, a := range l.Routes(t, "lb1").Announcements {
		drained := a.Prefix.String() == harness.VIP4+"/32"
		if drained != strings.Contains(a.Reason, "drained") || drained != (a.Withdrawals == 1) || a.Since.IsZero() {
			t.Errorf("announcement %+v", a)
		}
	}
}

// A lost router is detected at once, and the balancer reports its attempts.
func (l *lab) checkRouterGone(t *testing.T) {
	flaps := l.Routes(t, "lb1").Peers[0].Flaps
	if err := l.Stop(t.Context(), "router", "bgpd"); err != nil {
		t.Fatal(err)
	}
	var peer bgp.PeerState
	missed := await.Holds(func() bool {
		peer = l.Routes(t, "lb1").Peers[0]
		// The reset of a host without bgpd has no signature, and is ignored.
		return peer.State == bgp.Idle && strings.HasPrefix(peer.Reason, "timed out: ") && peer.Flaps == flaps+1 && !peer.NextTry.IsZero()
	})
	if !missed {
		t.Errorf("the router is gone: peer %+v", peer)
	}
	if line := lineOf(l.Show(t, "lb1", "routes"), harness.VIP4+"/32"); !strings.Contains(line, "no peer") {
		t.Errorf("without a peer it says %q", line)
	}
	if err := l.Start(t.Context(), "router", l.Process(t, "router", "bgpd")); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "the session is back", func() bool { return l.Routes(t, "lb1").Peers[0].State == bgp.Established })
	l.checkRoutes(t, "lb1", "lb3")
}
