// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// local is the balancer's speaker.
func local() bgp.Local { return bgp.Local{ASN: 65021, RouterID: balancer4} }

// router is the peer that the router is.
func router(addr netip.Addr, asn uint32) bgp.Peer {
	return bgp.Peer{Address: addr, ASN: asn, HoldTime: 3 * time.Second, RestartTime: bgp.DefaultRestartTime}
}

// open makes a speaker with peers, which is abandoned when the test ends.
func open(t *testing.T, peers ...bgp.Peer) *Speaker {
	t.Helper()
	s := Open(local(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(s.Abandon)
	if err := s.Configure(t.Context(), peers); err != nil {
		t.Fatal(err)
	}
	return s
}

// set announces host routes.
func set(t *testing.T, s *Speaker, addrs ...string) {
	t.Helper()
	routes := make([]bgp.Route, len(addrs))
	for i, text := range addrs {
		addr := netip.MustParseAddr(text)
		routes[i].Prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	if err := s.Set(routes); err != nil {
		t.Fatal(err)
	}
}

// awaitReason waits until the only peer's reason has text.
func awaitReason(t *testing.T, s *Speaker, text string) {
	t.Helper()
	await(t, text, func() bool { return strings.Contains(s.Peers()[0].Reason, text) })
	if state := s.Peers()[0]; state.State == bgp.Established {
		t.Error("established")
	}
}

// awaitEstablished waits until the only peer's session is.
func awaitEstablished(t *testing.T, s *Speaker) {
	t.Helper()
	await(t, "established", func() bool { return s.Peers()[0].State == bgp.Established })
}

// bgpd is FRR's configuration of AS asn, with a neighbour that is the balancer's
// address, some lines about it, and some below it.
func bgpd(asn string, balancer netip.Addr, lines ...string) string {
	of := " neighbor " + balancer.String() + " "
	about := of + strings.Join(lines, "\n"+of)
	return "router bgp " + asn + `
 bgp router-id 10.0.2.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 bgp graceful-restart
 timers bgp 1 3
` + about + `
 address-family ipv4 unicast
 ` + of + `activate
 address-family ipv6 unicast
 ` + of + `activate
`
}

func TestRoutesReachTheRoutersKernel(t *testing.T) {
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "passive"))
	start := time.Now()
	s := open(t, router(router4, 65000))
	set(t, s, "10.1.1.1", "fd00:10:1:1::1")
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	t.Log("from nothing to the kernel:", time.Since(start))
	r.awaitHops("fd00:10:1:1::1/128", "fd00:2::11")
	for range 5 {
		start = time.Now()
		set(t, s)
		r.awaitHops("10.1.1.1/32")
		t.Log("withdrawn:", time.Since(start))
		r.awaitHops("fd00:10:1:1::1/128")
		start = time.Now()
		set(t, s, "10.1.1.1", "fd00:10:1:1::1")
		r.awaitHops("10.1.1.1/32", "10.0.2.11")
		t.Log("announced:", time.Since(start))
		r.awaitHops("fd00:10:1:1::1/128", "fd00:2::11")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitHops("10.1.1.1/32")
	start = time.Now()
	again := open(t, router(router4, 65000))
	set(t, again, "10.1.1.1")
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	t.Log("from nothing to the kernel of a router that is there already:", time.Since(start))
}

func TestAttributes(t *testing.T) {
	full := bgp.Attributes{
		Communities:      []bgp.Community{65021<<16 | 100, 65021<<16 | 200},
		LargeCommunities: []bgp.LargeCommunity{{65021, 1, 2}},
		LocalPreference:  new(uint32(200)), MED: new(uint32(10)), Prepend: 2, LinkBandwidth: 1.25e9,
	}
	leaving := bgp.Attributes{LocalPreference: new(uint32(200)), GracefulShutdown: true}
	for name, test := range map[string]struct {
		asn  string
		peer bgp.Peer
		// what FRR shows of the routes
		path, leavingPath, preference, leavingPreference string
	}{
		"external": {"65000", router(router4, 65000), "65021 65021 65021", "65021", "", ""},
		"internal": {"65021", router(router4, 65021), "", "", "200", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := startFRR(t, bgpd(test.asn, balancer4, "remote-as 65021", "passive"))
			s := open(t, test.peer)
			err := s.Set([]bgp.Route{
				{Prefix: netip.MustParsePrefix("10.1.1.1/32"), Attributes: full},
				{Prefix: netip.MustParsePrefix("10.1.1.2/32"), NextHop: netip.MustParseAddr("10.0.2.99"), Attributes: leaving},
			})
			if err != nil {
				t.Fatal(err)
			}
			r.awaitHops("10.1.1.1/32", "10.0.2.11")
			r.awaitHops("10.1.1.2/32", "10.0.2.99")
			first, second := r.vtysh("show bgp ipv4 unicast 10.1.1.1/32"), r.vtysh("show bgp ipv4 unicast 10.1.1.2/32")
			wants(t, first, "Origin IGP", "metric 10", "Community: 65021:100 65021:200", "Large Community: 65021:1:2",
				"LB:65021:1250000000", test.path)
			wants(t, second, "graceful-shutdown", test.leavingPath)
			if test.preference != "" {
				wants(t, first, "localpref "+test.preference)
				wants(t, second, "localpref "+test.leavingPreference)
			}
		})
	}
}

// wants checks that text has parts.
func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}

func TestIPv4RoutesOverIPv6(t *testing.T) {
	for name, test := range map[string]struct {
		own4, extended bool
		hop            string
	}{
		"own IPv4 address": {own4: true, extended: true, hop: "10.0.2.11"},
		"RFC 8950":         {extended: true, hop: "fd00:2::11"},
		"neither":          {},
	} {
		t.Run(name, func(t *testing.T) {
			lines := []string{"remote-as 65021", "passive"}
			if test.extended {
				lines = append(lines, "capability extended-nexthop")
			}
			r := startFRR(t, bgpd("65000", balancer6, lines...))
			if !test.own4 {
				r.forget(balancer4)
			}
			s := open(t, router(router6, 65000))
			set(t, s, "10.1.1.1", "fd00:10:1:1::1")
			r.awaitHops("fd00:10:1:1::1/128", "fd00:2::11")
			if test.hop == "" {
				awaitEstablished(t, s)
				state := s.Peers()[0]
				if state.OmittedRoutes != 1 || !strings.Contains(state.OmittedReason, "no IPv4 address") || state.RoutesAnnounced != 1 {
					t.Errorf("%+v", state)
				}
				return
			}
			await(t, "next hop of 10.1.1.1", func() bool {
				return strings.Contains(r.vtysh("show bgp ipv4 unicast 10.1.1.1/32"), test.hop)
			})
			await(t, "in the kernel", func() bool { return len(r.hops("10.1.1.1/32")) == 1 })
		})
	}
}

func TestCloseTakesRoutesAway(t *testing.T) {
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "passive"))
	s := open(t, router(router4, 65000))
	set(t, s, "10.1.1.1")
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitHops("10.1.1.1/32")
	wants(t, r.vtysh("show bgp neighbor 10.0.2.11"), "Cease/Administrative Shutdown")
	if err := s.Configure(t.Context(), nil); err == nil {
		t.Error("configured after its end")
	}
}

func TestConfigureTouchesOnlyWhatChanged(t *testing.T) {
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "passive"))
	peer := router(router4, 65000)
	s := open(t, peer)
	set(t, s, "10.1.1.1")
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	awaitEstablished(t, s)
	since := s.Peers()[0].Since
	other := router(netip.MustParseAddr("10.0.2.77"), 65000)
	for _, peers := range [][]bgp.Peer{{peer}, {other, peer}, {peer}} {
		if err := s.Configure(t.Context(), peers); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(s.Peers(), func(p bgp.PeerState) bool { return p.Address == router4 })
		if state := s.Peers()[i]; state.State != bgp.Established || state.Since != since {
			t.Fatalf("touched: %+v", state)
		}
	}
	before := r.notifications()
	peer.HoldTime = 6 * time.Second
	if err := s.Configure(t.Context(), []bgp.Peer{peer}); err != nil {
		t.Fatal(err)
	}
	await(t, "a new session", func() bool { return s.Peers()[0].HoldTime == 3*time.Second && s.Peers()[0].Since != since })
	changed := r.notifications()
	if changed == before {
		t.Error("the session that changed ended without a notification")
	}
	if err := s.Configure(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.awaitHops("10.1.1.1/32")
	if r.notifications() == changed {
		t.Error("the session that is no longer wanted ended without a notification")
	}
}
