// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// patient lets either end wait for processors, on a busy machine.
var patient = bgp.BFD{Interval: bgp.DefaultBFD.Interval, Multiplier: 20}

// watchedRouter is a router with bfdd, and a peer that BFD watches.
func watchedRouter(t *testing.T, lines ...string) (*frr, bgp.Peer) {
	t.Helper()
	r := startFRR(t, bgpd("65000", balancer4, append([]string{"remote-as 65021", "passive"}, lines...)...))
	r.start("bfdd", "bfd\n profile fast\n  detect-multiplier 20\n  transmit-interval 100\n  receive-interval 100\n")
	r.vtysh("configure", "router bgp 65000", "neighbor 10.0.2.11 bfd", "neighbor 10.0.2.11 bfd profile fast")
	peer := router(router4, 65000)
	peer.HoldTime, peer.BFD = 90*time.Second, &patient
	return r, peer
}

// awaitWatched waits until BFD is up at both ends.
func awaitWatched(t *testing.T, r *frr, s *Speaker) {
	t.Helper()
	await.True(t, "BFD", func() bool {
		return s.Peers()[0].BFD == bgp.BFDUp && strings.Contains(r.vtysh("show bfd peers brief"), " up")
	})
}

func TestBFDDetectsDeadRouter(t *testing.T) {
	r, peer := watchedRouter(t)
	s := open(t, peer)
	announce(t, r, s, "10.1.1.1")
	awaitWatched(t, r, s)
	r.change(netlink.LinkSetDown)
	start := time.Now()
	awaitReason(t, s, "BFD down: control detection time expired")
	t.Log("found after", time.Since(start))
	r.change(netlink.LinkSetUp)
	awaitEstablished(t, s)
	awaitWatched(t, r, s)
	wantFlaps(t, s, 1)
}

func TestAbandonWithBFD(t *testing.T) {
	r, peer := watchedRouter(t)
	s := open(t, peer)
	announce(t, r, s, "10.1.1.1")
	awaitWatched(t, r, s)
	kept := r.watch("10.1.1.1/32")
	s.Abandon()
	await.True(t, "the router's BFD to notice", func() bool {
		return strings.Contains(r.vtysh("show bfd peers brief"), " down")
	})
	again := open(t, peer)
	set(t, again, "10.1.1.1")
	awaitEstablished(t, again)
	awaitWatched(t, r, again)
	kept()
}

// One that is back within the detection time takes up the router's BFD session: it
// neither falls while there is no BGP session nor ends the next one.
func TestRestartWithinDetectionTime(t *testing.T) {
	r, peer := watchedRouter(t)
	checkBack(t, r.box, peer)
	if brief := r.vtysh("show bfd peers counters"); !strings.Contains(brief, "Session down events: 0") {
		t.Error(brief)
	}
}

// checkBack has a speaker die and another one take its place several times, while
// the router watches.
func checkBack(t *testing.T, r *box, peer bgp.Peer) {
	t.Helper()
	peer.BFD = &patient
	s := open(t, peer)
	announce(t, r, s, "10.1.1.1")
	awaitBFD(t, s)
	kept := r.watch("10.1.1.1/32")
	for _, more := range []string{"10.1.1.2", "10.1.1.3", "10.1.1.4"} {
		s.Abandon()
		s = open(t, peer)
		set(t, s, "10.1.1.1")
		awaitEstablished(t, s)
		awaitBFD(t, s)
		// With this the router has all that was said before. One that dies sooner loses
		// its routes (RFC 4724 §4.2, consecutive restarts).
		set(t, s, "10.1.1.1", more)
		r.awaitHops(more+"/32", "10.0.2.11")
	}
	kept()
	wantFlaps(t, s, 0)
}
