// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

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
		// FRR's output about the routes
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

func TestLinkBandwidth(t *testing.T) {
	other := netip.MustParseAddr("10.0.2.12")
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "passive")+besides(other, "remote-as 65021", "passive"))
	r.address(other, netip.MustParseAddr("fd00:2::12"))
	for _, from := range []struct {
		addr      netip.Addr
		bandwidth float32 // bytes a second
		hops      []string
	}{
		{balancer4, 1.25e9, []string{"10.0.2.11"}},
		{other, 3.75e9, []string{"10.0.2.11", "10.0.2.12"}},
	} {
		peer := router(router4, 65000)
		peer.LocalAddress = from.addr
		err := open(t, peer).Set([]bgp.Route{{
			Prefix: netip.MustParsePrefix("10.1.1.1/32"), Attributes: bgp.Attributes{LinkBandwidth: from.bandwidth},
		}})
		if err != nil {
			t.Fatal(err)
		}
		r.awaitHops("10.1.1.1/32", from.hops...)
	}
	await.True(r.t, "a quarter and three", func() bool {
		weights := r.weights("10.1.1.1/32")
		slow, fast := weights["10.0.2.11"], weights["10.0.2.12"]
		return fast > 2*slow && fast < 4*slow // FRR rounds them
	})
}
