// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"log/slog"
	"net/netip"
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

// external is a router of AS 65000.
const external = `
router bgp 65000
 bgp router-id 10.0.2.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 bgp graceful-restart
 timers bgp 1 3
 neighbor 10.0.2.11 remote-as 65021
 neighbor 10.0.2.11 passive
 address-family ipv4 unicast
  neighbor 10.0.2.11 activate
 address-family ipv6 unicast
  neighbor 10.0.2.11 activate
`

func TestRoutesReachTheRoutersKernel(t *testing.T) {
	r := startFRR(t, external)
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
	t.Logf("%+v", s.Peers()[0])
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitHops("10.1.1.1/32")
}
