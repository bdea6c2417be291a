// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/bgp"
)

// watchedRouter is a router with bfdd, and a peer that BFD watches.
func watchedRouter(t *testing.T, lines ...string) (*frr, bgp.Peer) {
	t.Helper()
	r := startFRR(t, bgpd("65000", balancer4, append([]string{"remote-as 65021", "passive"}, lines...)...))
	r.start("bfdd", "bfd\n profile fast\n  transmit-interval 100\n  receive-interval 100\n")
	r.vtysh("configure", "router bgp 65000", "neighbor 10.0.2.11 bfd", "neighbor 10.0.2.11 bfd profile fast")
	peer := router(router4, 65000)
	peer.HoldTime, peer.BFD = 90*time.Second, &bgp.DefaultBFD
	return r, peer
}

// awaitWatched waits until BFD is up at both ends.
func awaitWatched(t *testing.T, r *frr, s *Speaker) {
	t.Helper()
	await(t, "BFD", func() bool {
		return s.Peers()[0].BFD == bgp.BFDUp && strings.Contains(r.vtysh("show bfd peers brief"), " up")
	})
}

func TestBFDFindsADeadRouter(t *testing.T) {
	r, peer := watchedRouter(t)
	s := open(t, peer)
	set(t, s, "10.1.1.1")
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	awaitWatched(t, r, s)
	r.change(netlink.LinkSetDown)
	start := time.Now()
	awaitReason(t, s, "BFD down: control detection time expired")
	t.Log("found after", time.Since(start))
	r.change(netlink.LinkSetUp)
	awaitEstablished(t, s)
	awaitWatched(t, r, s)
	if state := s.Peers()[0]; state.BFDFlaps != 1 || state.Flaps != 1 {
		t.Errorf("%+v", state)
	}
}

func TestEndWithoutAWordKeepsRoutesUnderBFD(t *testing.T) {
	r, peer := watchedRouter(t)
	s := open(t, peer)
	set(t, s, "10.1.1.1")
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	awaitWatched(t, r, s)
	gone := r.watch("10.1.1.1/32")
	s.Abandon()
	await(t, "the router's BFD to notice", func() bool {
		return strings.Contains(r.vtysh("show bfd peers brief"), " down")
	})
	again := open(t, peer)
	set(t, again, "10.1.1.1")
	awaitEstablished(t, again)
	awaitWatched(t, r, again)
	if lost := gone(); len(lost) > 0 {
		t.Error("lost meanwhile:", lost)
	}
}
