// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// stateOf is the state of one of several peers.
func stateOf(s *Speaker, peer netip.Addr) bgp.PeerState {
	for _, state := range s.Peers() {
		if state.Address == peer {
			return state
		}
	}
	return bgp.PeerState{}
}

// awaitBoth waits until the sessions with peers are established.
func awaitBoth(t *testing.T, s *Speaker, peers ...netip.Addr) {
	t.Helper()
	for _, peer := range peers {
		await.True(t, "session with "+peer.String(), func() bool { return stateOf(s, peer).State == bgp.Established })
	}
}

func TestSeveralPeers(t *testing.T) {
	b := startBIRD(t, bird(""))
	f := startFRRIn(newBox(t, second), bgpd("65000", second.near4, "remote-as 65021", "passive")+
		besides(second.near6, "remote-as 65021", "passive"))
	absent := netip.MustParseAddr("10.0.2.77")
	s := open(t, router(router4, 65000), router(second.at4, 65000), router(second.at6, 65000), router(absent, 65000))
	set(t, s, "10.1.1.1", "fd00:10:1:1::1")
	awaitBoth(t, s, router4, second.at4, second.at6)
	b.awaitHops("10.1.1.1/32", "10.0.2.11") // each has its own way to the balancer
	b.awaitHops("fd00:10:1:1::1/128", "fd00:2::11")
	f.awaitHops("10.1.1.1/32", "10.0.3.11")
	f.awaitHops("fd00:10:1:1::1/128", "fd00:3::11")

	kept := f.watch("10.1.1.1/32", "fd00:10:1:1::1/128")
	b.stop("bird")
	await.True(t, "the loss", func() bool { return stateOf(s, router4).Reason == "connection refused" })
	set(t, s, "10.1.1.1", "10.1.1.2", "fd00:10:1:1::1")
	f.awaitHops("10.1.1.2/32", "10.0.3.11")
	kept()
	for _, peer := range []netip.Addr{second.at4, second.at6} {
		if state := stateOf(s, peer); state.State != bgp.Established || state.Flaps != 0 {
			t.Errorf("%+v", state)
		}
	}
}

func TestHoldTime(t *testing.T) {
	for name, test := range map[string]struct {
		timers string // the router's
		own    time.Duration
		want   time.Duration
	}{
		"the router's is shorter":   {"timers 1 3", 90 * time.Second, 3 * time.Second},
		"the balancer's is shorter": {"timers 30 90", 6 * time.Second, 6 * time.Second},
		"for ever":                  {"timers 30 90", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "passive", test.timers))
			peer := router(router4, 65000)
			peer.HoldTime = test.own
			s := open(t, peer)
			set(t, s)
			awaitEstablished(t, s)
			if got := s.Peers()[0].HoldTime; got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			await.True(t, "the router's view", func() bool {
				return r.neighbour().HoldTime == int(test.want.Milliseconds())
			})
		})
	}
}

// beyond is a place behind the first one's router.
var beyond = place{
	"eth2", netip.MustParseAddr("10.0.4.11"), netip.MustParseAddr("fd00:4::11"),
	netip.MustParseAddr("10.0.4.1"), netip.MustParseAddr("fd00:4::1"),
}

// A router one hop further away is reached by peers that are configured so, and by no
// others: over IPv4 by the number of hops, over IPv6 by TTL security.
func TestMultihop(t *testing.T) {
	between := newBox(t, first)
	between.forward()
	f := newBehind(t, beyond, between.do)
	for to, via := range map[string]netip.Addr{"10.0.4.0/24": router4, "fd00:4::/64": router6} {
		f.route(to, via)
	}
	f.do(func() {
		for to, via := range map[string]netip.Addr{"10.0.2.0/24": beyond.near4, "fd00:2::/64": beyond.near6} {
			f.route(to, via)
		}
	})
	r := startFRRIn(f, bgpd("65000", balancer4, "remote-as 65021", "passive", "ebgp-multihop 2")+
		besides(balancer6, "remote-as 65021", "passive", "ttl-security hops 2"))
	peers := []bgp.Peer{router(beyond.at4, 65000), router(beyond.at6, 65000)}
	peers[1].TTLSecurity = 1
	s := open(t, peers...)
	set(t, s, "10.1.1.1", "fd00:10:1:1::1")
	for peer, reason := range map[netip.Addr]string{
		beyond.at4: "no route to host",
		beyond.at6: "timed out: further away than TTL security allows, unreachable, or it wants a password",
	} {
		await.True(t, reason, func() bool { return stateOf(s, peer).Reason == reason })
	}
	peers[0].Multihop, peers[1].TTLSecurity = 2, 2
	configure(t, s, peers)
	awaitBoth(t, s, beyond.at4, beyond.at6)
	r.awaitHops("10.1.1.1/32", beyond.near4.String())
	r.awaitHops("fd00:10:1:1::1/128", beyond.near6.String())
	await.True(t, "paths of both sessions", func() bool {
		return strings.Contains(r.vtysh("show bgp ipv4 unicast 10.1.1.1/32"), "2 available")
	})
}
