// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// routers start the routers that a test is for.
func routers() map[string]func(*testing.T) *box {
	return map[string]func(*testing.T) *box{
		"FRR": func(t *testing.T) *box {
			return startPassiveFRR(t).box
		},
		"BIRD": func(t *testing.T) *box { return startBIRD(t, bird("")) },
	}
}

func TestPrefixesAndNextHops(t *testing.T) {
	for name, start := range routers() {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			routes := map[string]string{ // to the next hop that is given
				"10.1.1.1/32": "", "10.2.0.0/16": "", "10.1.1.2/32": "10.0.2.99",
				"fd00:10:1:1::1/128": "", "fd00:20::/48": "", "fd00:10:1:1::2/128": "fd00:2::99",
			}
			var wanted []bgp.Route
			for prefix, hop := range routes {
				route := bgp.Route{Prefix: netip.MustParsePrefix(prefix)}
				if hop != "" {
					route.NextHop = netip.MustParseAddr(hop)
				}
				wanted = append(wanted, route)
			}
			s := open(t, router(router4, 65000))
			if err := s.Set(wanted); err != nil {
				t.Fatal(err)
			}
			for prefix, hop := range routes {
				if hop == "" {
					hop = balancer4.String()
					if strings.Contains(prefix, ":") {
						hop = balancer6.String()
					}
				}
				r.awaitHops(prefix, hop)
			}
			set(t, s)
			for prefix := range routes {
				r.awaitHops(prefix)
			}
		})
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
			await.True(t, "next hop of 10.1.1.1", func() bool {
				return strings.Contains(r.vtysh("show bgp ipv4 unicast 10.1.1.1/32"), test.hop)
			})
			await.True(t, "in the kernel", func() bool { return len(r.hops("10.1.1.1/32")) == 1 })
		})
	}
}

func TestBIRDIPv4RoutesOverIPv6(t *testing.T) {
	r := startBIRD(t, bird(""))
	r.forget(balancer4)
	set(t, open(t, router(router6, 65000)), "10.1.1.1", "fd00:10:1:1::1")
	r.awaitHops("10.1.1.1/32", "fd00:2::11")
	r.awaitHops("fd00:10:1:1::1/128", "fd00:2::11")
}
