// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/test/await"
)

func TestAbandon(t *testing.T) {
	r := startPassiveFRR(t)
	checkAbandon(t, r.box, func() {
		await.True(t, "the router to notice", func() bool {
			return !strings.Contains(r.vtysh("show bgp neighbor 10.0.2.11"), "state = Established")
		})
	})
	wants(t, r.vtysh("show bgp neighbor 10.0.2.11"), "R bit", "F bit")
}

func TestBIRDAbandon(t *testing.T) { checkAbandon(t, startBIRD(t, bird("")), func() {}) }

// checkAbandon has a speaker die and another one, with a route less, take its place.
func checkAbandon(t *testing.T, r *box, notices func()) {
	t.Helper()
	s := open(t, router(router4, 65000))
	announce(t, r, s, "10.1.1.1", "10.1.1.2", "fd00:10:1:1::1")
	kept := r.watch("10.1.1.1/32", "fd00:10:1:1::1/128")
	s.Abandon()
	notices()
	again := open(t, router(router4, 65000))
	set(t, again, "10.1.1.1", "fd00:10:1:1::1")
	r.awaitHops("10.1.1.2/32")
	awaitEstablished(t, again)
	kept()
}

// A session that is lost while the agent runs doesn't have the R bit (RFC 4724 §3), but
// the F bit, as the data plane wasn't interrupted: no route may be missing for a moment.
func TestLostConnection(t *testing.T) {
	for name, breaks := range map[string]func(*box){
		"reset by the router":   func(r *box) { r.do(func() { cut(r.t) }) },
		"reset by the balancer": func(r *box) { cut(r.t) },
		"the router hasn't noticed": func(r *box) {
			find := r.lose(router4)
			cut(r.t)
			find()
		},
	} {
		for router, start := range routers() {
			t.Run(router+" "+name, func(t *testing.T) { lostConnection(t, start(t), breaks) })
		}
	}
}

func lostConnection(t *testing.T, r *box, breaks func(*box)) {
	s := open(t, router(router4, 65000))
	announce(t, r, s, "10.1.1.1", "fd00:10:1:1::1")
	awaitEstablished(t, s)
	kept := r.watch("10.1.1.1/32", "fd00:10:1:1::1/128")
	breaks(r)
	await.True(t, "the loss", func() bool { return s.Peers()[0].Flaps == 1 })
	set(t, s, "10.1.1.2", "10.1.1.1", "fd00:10:1:1::1")
	awaitEstablished(t, s)
	r.awaitHops("10.1.1.2/32", "10.0.2.11") // behind the routes that the router had to clear
	kept()
	if flaps := s.Peers()[0].Flaps; flaps != 1 {
		t.Error("flaps:", flaps)
	}
}

func TestPassivePeerReconnects(t *testing.T) {
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "timers connect 1", "timers 30 90"))
	peer := router(router4, 65000)
	peer.Passive, peer.HoldTime = true, 90*time.Second
	s := open(t, peer)
	announce(t, r, s, "10.1.1.1", "fd00:10:1:1::1")
	kept := r.watch("10.1.1.1/32", "fd00:10:1:1::1/128")
	r.do(func() { // without the balancer's noticing
		find := r.lose(balancer4)
		cut(t)
		find()
	})
	await.True(t, "the loss", func() bool { return s.Peers()[0].Flaps == 1 })
	set(t, s, "10.1.1.2", "10.1.1.1", "fd00:10:1:1::1")
	r.awaitHops("10.1.1.2/32", "10.0.2.11")
	kept()
}
