// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
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
	configure(t, s, peers)
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

// announce announces host routes and waits until the router's kernel has them.
func announce(t *testing.T, r interface{ awaitRoutes(addrs ...string) }, s *Speaker, addrs ...string) {
	t.Helper()
	set(t, s, addrs...)
	r.awaitRoutes(addrs...)
}

func configure(t *testing.T, s *Speaker, peers []bgp.Peer) {
	t.Helper()
	if err := s.Configure(t.Context(), peers); err != nil {
		t.Fatal(err)
	}
}

// wantFlaps checks how often the only peer's sessions of BGP and BFD were lost.
func wantFlaps(t *testing.T, s *Speaker, flaps uint64) {
	t.Helper()
	if state := s.Peers()[0]; state.Flaps != flaps || state.BFDFlaps != flaps {
		t.Errorf("%+v, want %d flaps", state, flaps)
	}
}

// awaitBFD waits until the only peer's BFD session is up.
func awaitBFD(t *testing.T, s *Speaker) {
	t.Helper()
	await.True(t, "BFD", func() bool { return s.Peers()[0].BFD == bgp.BFDUp })
}

// awaitReason waits until the only peer's reason has text.
func awaitReason(t *testing.T, s *Speaker, text string) {
	t.Helper()
	await.True(t, text, func() bool { return strings.Contains(s.Peers()[0].Reason, text) })
	if state := s.Peers()[0]; state.State == bgp.Established {
		t.Error("established")
	}
}

// awaitEstablished waits until the only peer's session is.
func awaitEstablished(t *testing.T, s *Speaker) {
	t.Helper()
	await.True(t, "established", func() bool { return s.Peers()[0].State == bgp.Established })
}

// openFollowed makes a speaker whose routes come and go, and the router's kernel
// follows.
func openFollowed(t *testing.T, r *box, peer bgp.Peer) *Speaker {
	t.Helper()
	start := time.Now()
	s := open(t, peer)
	announced := func(what string) {
		set(t, s, "10.1.1.1", "fd00:10:1:1::1")
		r.awaitHops("10.1.1.1/32", "10.0.2.11")
		t.Log(what, time.Since(start))
		r.awaitHops("fd00:10:1:1::1/128", "fd00:2::11")
	}
	announced("from nothing to the kernel:")
	for range 5 {
		start = time.Now()
		set(t, s)
		r.awaitHops("10.1.1.1/32")
		t.Log("withdrawn:", time.Since(start))
		r.awaitHops("fd00:10:1:1::1/128")
		start = time.Now()
		announced("announced:")
	}
	return s
}

func TestRoutesInRouter(t *testing.T) {
	r := startPassiveFRR(t)
	s := openFollowed(t, r.box, router(router4, 65000))
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitHops("10.1.1.1/32")
	start := time.Now()
	again := open(t, router(router4, 65000))
	set(t, again, "10.1.1.1")
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	t.Log("from nothing to the kernel of a router that is there already:", time.Since(start))
}

func TestCloseWithdraws(t *testing.T) {
	r := startPassiveFRR(t)
	s := open(t, router(router4, 65000))
	announce(t, r, s, "10.1.1.1")
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitHops("10.1.1.1/32")
	if said := r.vtysh("show bgp neighbor 10.0.2.11"); !regexp.MustCompile(`Cease/Administrative(ly)? Shutdown`).MatchString(said) {
		t.Errorf("no shutdown in:\n%s", said) // FRR 8.1 has the adverb
	}
	if err := s.Configure(t.Context(), nil); err == nil {
		t.Error("configured after its end")
	}
}

func TestConfigureKeepsUnchangedPeers(t *testing.T) {
	r := startPassiveFRR(t)
	peer := router(router4, 65000)
	s := open(t, peer)
	announce(t, r, s, "10.1.1.1")
	awaitEstablished(t, s)
	since := s.Peers()[0].Since
	other := router(netip.MustParseAddr("10.0.2.77"), 65000)
	for _, peers := range [][]bgp.Peer{{peer}, {other, peer}, {peer}} {
		configure(t, s, peers)
		i := slices.IndexFunc(s.Peers(), func(p bgp.PeerState) bool { return p.Address == router4 })
		if state := s.Peers()[i]; state.State != bgp.Established || state.Since != since {
			t.Fatalf("touched: %+v", state)
		}
	}
	before := r.neighbour().Messages.NotificationsRecv
	peer.HoldTime = 6 * time.Second
	configure(t, s, []bgp.Peer{peer})
	await.True(t, "a new session", func() bool { return s.Peers()[0].HoldTime == 3*time.Second && s.Peers()[0].Since != since })
	changed := r.neighbour().Messages.NotificationsRecv
	if changed == before {
		t.Error("the session that changed ended without a notification")
	}
	configure(t, s, nil)
	r.awaitHops("10.1.1.1/32")
	if r.neighbour().Messages.NotificationsRecv == changed {
		t.Error("the session of the removed peer ended without a notification")
	}
}

func TestSetSameRoutes(t *testing.T) {
	r := startPassiveFRR(t)
	s := open(t, router(router4, 65000))
	set(t, s, "10.1.1.1", "10.1.1.2", "fd00:10:1:1::1")
	awaitEstablished(t, s)
	r.awaitRoutes("10.1.1.2", "fd00:10:1:1::1")
	sent, received := s.Peers()[0].UpdatesSent, r.neighbour().Messages.UpdatesRecv
	for range 10 {
		set(t, s, "fd00:10:1:1::1", "10.1.1.2", "10.1.1.1")
	}
	set(t, s, "10.1.1.1", "10.1.1.2", "10.1.1.3", "fd00:10:1:1::1") // the only news
	r.awaitHops("10.1.1.3/32", "10.0.2.11")
	if got := s.Peers()[0].UpdatesSent - sent; got != 1 {
		t.Errorf("%d updates sent, want 1", got)
	}
	if got := r.neighbour().Messages.UpdatesRecv - received; got != 1 {
		t.Errorf("%d updates reached the router, want 1", got)
	}
}
