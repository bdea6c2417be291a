// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// What "fairlead routes" says of routes and peers is what a real router has of
// them, while VIPs come and go.
func TestRoutes(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "routes", routed(t, netlab.ECMPOptions{Router: netlab.FRR}))
	t.Run("established", l.checkPeers)
	t.Run("announced", func(t *testing.T) { l.checkRoutes(t, "lb1", "lb2", "lb3") })
	t.Run("table", l.checkRouteTable)
	for _, service := range []string{"web", "echo"} {
		l.show(t, "lb1", "drain", "service", service)
	}
	t.Run("drained", func(t *testing.T) { l.checkRoutes(t, "lb2", "lb3") })
	t.Run("reason", l.checkReason)
	l.show(t, "lb1", "undrain", "service", "web")
	t.Run("undrained", func(t *testing.T) { l.checkRoutes(t, "lb1", "lb2", "lb3") })
	l.show(t, "lb2", "drain", "node")
	t.Run("node drained", func(t *testing.T) { l.checkRoutes(t, "lb1", "lb3") })
	t.Run("router gone", l.checkRouterGone)
}

// show runs a command that asks a balancer.
func (l *lab) show(t *testing.T, host string, args ...string) string {
	t.Helper()
	return show(t, append(args, "--socket", l.State().Host(host).Socket)...)
}

// routes are what a balancer says of them.
func (l *lab) routes(t *testing.T, host string) (r observe.Routes) {
	t.Helper()
	decode(t, l.show(t, host, "routes", "-o", "json"), &r)
	return r
}

// frr asks the router; what it prints is JSON.
func (l *lab) frr(t *testing.T, command string, into any) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "vtysh", "--vty_socket", l.State().Host("router").Directory, "-c", command+" json").Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// address is a host's in the network of the router and the balancers.
func (l *lab) address(host string) netip.Addr {
	interfaces := l.topology.Host(host).Interfaces
	return interfaces[len(interfaces)-1].Addresses[0].Addr()
}

// Both ends say the same of each session, and of BFD.
func (l *lab) checkPeers(t *testing.T) {
	for _, h := range l.hosts(netlab.Balancer) {
		var peer bgp.PeerState
		until(t, h.Name+" has a session with BFD", func() bool {
			peers := l.routes(t, h.Name).Peers
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
		l.frr(t, "show bgp neighbors "+l.address(h.Name).String(), &theirs)
		for name, n := range theirs {
			if name != peer.LocalAddress.String() || n.State != "Established" || n.RemoteAS != l.routes(t, h.Name).ASN || n.Router != l.routes(t, h.Name).RouterID.String() {
				t.Errorf("%s: FRR says %+v of %s, the balancer %+v", h.Name, n, name, peer)
			}
		}
		if peer.Address != l.address("router") || peer.RouterID != l.address("router") || peer.HoldTime != 3*time.Second ||
			!peer.GracefulRestart || peer.Reason != "" || peer.RoutesAnnounced != 2 || peer.MessagesSent < 4 {
			t.Errorf("%s: peer %+v", h.Name, peer)
		}
	}
}

// checkRoutes waits until the router has routes to the VIP of IPv4 from these
// balancers alone, and compares what everybody says of all VIPs.
func (l *lab) checkRoutes(t *testing.T, balancers ...string) {
	until(t, fmt.Sprintf("%s announce %s", balancers, vip4), func() bool {
		return slices.Equal(l.heard(t)[vip4+"/32"], balancers)
	})
	said := func() map[string][]string {
		all := map[string][]string{}
		for _, h := range l.hosts(netlab.Balancer) {
			for _, a := range l.routes(t, h.Name).Announcements {
				if a.Announced && slices.Equal(a.Peers, []netip.Addr{l.address("router")}) {
					all[a.Prefix.String()] = append(all[a.Prefix.String()], h.Name)
				}
			}
		}
		return all
	}
	if !within(patience, func() bool { return reflect.DeepEqual(said(), l.heard(t)) }) {
		t.Errorf("balancers say %v, the router %v", said(), l.heard(t))
	}
}

// heard is who announces which prefix, by the router.
func (l *lab) heard(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, family := range []string{"ipv4", "ipv6"} {
		var table struct {
			Routes map[string][]struct {
				Peer string `json:"peerId"`
			}
		}
		l.frr(t, "show bgp "+family+" unicast", &table)
		for prefix, paths := range table.Routes {
			for _, h := range l.hosts(netlab.Balancer) {
				for _, path := range paths {
					if path.Peer == l.address(h.Name).String() {
						all[prefix] = append(all[prefix], h.Name)
					}
				}
			}
		}
	}
	return all
}

// The table for people has a line for each prefix and each peer, and the status
// sums them up.
func (l *lab) checkRouteTable(t *testing.T) {
	router := l.address("router").String()
	text := l.show(t, "lb1", "routes")
	for _, want := range [][]string{
		{vip4 + "/32", "echo, web", router, "announced"}, {vip6 + "/128", "echo6, web6", router, "announced"},
		{router, "65000", "up", "0/2", "established"},
	} {
		line := lineOf(text, want[0])
		for _, word := range want {
			if !strings.Contains(line, word) {
				t.Errorf("the line of %s is %q, want %q in it:\n%s", want[0], line, word, text)
			}
		}
	}
	const sum = "1 of 1 peers established, 2 of 2 routes announced"
	if status := l.show(t, "lb1", "status"); !strings.Contains(status, sum) {
		t.Errorf("the status lacks %q:\n%s", sum, status)
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

// What is not announced says why.
func (l *lab) checkReason(t *testing.T) {
	for _, a := range l.routes(t, "lb1").Announcements {
		drained := a.Prefix.String() == vip4+"/32"
		if drained != strings.Contains(a.Reason, "drained") || drained != (a.Withdrawals == 1) || a.Since.IsZero() {
			t.Errorf("announcement %+v", a)
		}
	}
}

// A router that is gone is missed at once, and the balancer says what it tries.
func (l *lab) checkRouterGone(t *testing.T) {
	flaps := l.routes(t, "lb1").Peers[0].Flaps
	if err := l.Stop(t.Context(), "router", "bgpd"); err != nil {
		t.Fatal(err)
	}
	var peer bgp.PeerState
	missed := within(patience, func() bool {
		peer = l.routes(t, "lb1").Peers[0]
		return peer.State == bgp.Idle && peer.Reason == "connection refused" && peer.Flaps == flaps+1 && !peer.NextTry.IsZero()
	})
	if !missed {
		t.Errorf("the router is gone: peer %+v", peer)
	}
	if line := lineOf(l.show(t, "lb1", "routes"), vip4+"/32"); !strings.Contains(line, "no peer") {
		t.Errorf("without a peer it says %q", line)
	}
	if err := l.Start(t.Context(), "router", l.process(t, "router", "bgpd")); err != nil {
		t.Fatal(err)
	}
	until(t, "the session is back", func() bool { return l.routes(t, "lb1").Peers[0].State == bgp.Established })
	l.checkRoutes(t, "lb1", "lb3")
}
