// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// secret is a file with a password.
func secret(t *testing.T, password string) bgp.Secret {
	t.Helper()
	s := bgp.Secret{File: filepath.Join(t.TempDir(), "password")}
	if err := os.WriteFile(s.File, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPassword(t *testing.T) {
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "passive", "password correct"))
	peer := router(router4, 65000)
	peer.Password.File = filepath.Join(t.TempDir(), "password")
	s := open(t, peer)
	set(t, s, "10.1.1.1")
	awaitReason(t, s, "no such file")
	if err := os.WriteFile(peer.Password.File, []byte("correct"), 0o600); err != nil { // read at the next try
		t.Fatal(err)
	}
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	if err := os.WriteFile(peer.Password.File, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.vtysh("clear bgp *")
	awaitReason(t, s, "has 0 bytes: want 1 to 80")
}

func TestPasswordFromEnvironment(t *testing.T) {
	t.Setenv("FAIRLEAD_TEST_PASSWORD", "correct")
	r := startFRR(t, bgpd("65000", balancer6, "remote-as 65021", "passive", "password correct"))
	peer := router(router6, 65000)
	peer.Password = bgp.Secret{Env: "FAIRLEAD_TEST_PASSWORD"}
	set(t, open(t, peer), "fd00:10:1:1::1")
	r.awaitHops("fd00:10:1:1::1/128", "fd00:2::11")
}

func TestTTLSecurity(t *testing.T) {
	for name, addr := range map[string]struct{ router, balancer netip.Addr }{
		"IPv4": {router4, balancer4}, "IPv6": {router6, balancer6},
	} {
		t.Run(name, func(t *testing.T) {
			r := startFRR(t, bgpd("65000", addr.balancer, "remote-as 65021", "passive", "ttl-security hops 1"))
			peer := router(addr.router, 65000)
			peer.TTLSecurity = 1
			set(t, open(t, peer), "fd00:10:1:1::1")
			r.awaitHops("fd00:10:1:1::1/128", "fd00:2::11")
		})
	}
}

func TestPassivePeer(t *testing.T) {
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "timers connect 1", "password correct", "ttl-security hops 1"))
	peer := router(router4, 65000)
	peer.Passive, peer.TTLSecurity, peer.Password = true, 1, secret(t, "wrong")
	s := open(t, peer)
	set(t, s, "10.1.1.1")
	awaitReason(t, s, "waiting for the peer to connect")
	if err := os.WriteFile(peer.Password.File, []byte("correct"), 0o600); err != nil { // read every few seconds
		t.Fatal(err)
	}
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
}

func TestStates(t *testing.T) {
	stranger, known := netip.MustParseAddr("10.0.2.12"), netip.MustParseAddr("10.0.2.13")
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65099", "passive")+
		besides(known, "remote-as 65021", "passive")+
		besides(balancer6, "remote-as 65021", "passive", "password correct"))
	r.address(stranger, netip.MustParseAddr("fd00:2::12"))
	r.address(known, netip.MustParseAddr("fd00:2::13"))
	peer := func(addr string, local netip.Addr) bgp.Peer {
		p := router(netip.MustParseAddr(addr), 65000)
		p.LocalAddress = local
		return p
	}
	otherASN, signed := peer("10.0.2.1", known), peer("fd00:2::1", balancer6)
	otherASN.ASN, signed.Password = 65055, secret(t, "wrong")
	var reasons []string
	var speakers []*Speaker
	for _, test := range []struct {
		peer   bgp.Peer
		reason string
	}{
		{peer("10.0.2.1", balancer4), "received NOTIFICATION: bad peer AS: the peer does not accept AS 65021, and is AS 65000 itself"},
		{otherASN, "bad peer AS: the peer is AS 65000, configured is AS 65055"},
		{peer("10.0.2.1", stranger), "peer closed the connection"},
		{signed, "timed out: wrong password, or unreachable"},
		{peer("fd00:2::1", balancer6), "timed out: unreachable, or it wants a password"},
		{peer("10.0.2.77", balancer4), "no route to host"},
		{peer("10.99.0.1", balancer4), "network is unreachable"},
		{peer("10.0.2.11", balancer4), "connection refused"},
	} {
		s := open(t, test.peer)
		if got := s.Peers()[0].Reason; got != "waiting for the first routes" {
			t.Error(got)
		}
		speakers, reasons = append(speakers, s), append(reasons, test.reason)
	}
	for _, s := range speakers { // all at once: some take their time
		set(t, s, "10.1.1.1")
	}
	for i, s := range speakers {
		awaitReason(t, s, reasons[i])
		await.True(t, "the next try", func() bool { return s.Peers()[0].NextTry.After(time.Now()) })
	}
}

func TestHoldTimer(t *testing.T) {
	r := startPassiveFRR(t)
	s := open(t, router(router4, 65000))
	set(t, s, "10.1.1.1")
	awaitEstablished(t, s)
	r.freeze("bgpd")
	awaitReason(t, s, "hold timer expired")
	if state := s.Peers()[0]; state.Flaps != 1 || state.Since.IsZero() {
		t.Errorf("%+v", state)
	}
}

func TestPeerCloses(t *testing.T) {
	r := startPassiveFRR(t)
	s := open(t, router(router4, 65000))
	set(t, s, "10.1.1.1")
	awaitEstablished(t, s)
	r.vtysh("clear bgp *")
	awaitReason(t, s, "received NOTIFICATION: administrative reset")
	awaitEstablished(t, s)
	r.stop("bgpd") // by SIGKILL
	await.True(t, "the loss", func() bool { return s.Peers()[0].Flaps == 2 })
	awaitReason(t, s, "connection refused")
}

// Later failures are shown with the NOTIFICATION that ended the session.
func TestPeerShutsDown(t *testing.T) {
	r := startPassiveFRR(t)
	s := open(t, router(router4, 65000))
	set(t, s, "10.1.1.1")
	awaitEstablished(t, s)
	r.vtysh("configure terminal", "router bgp 65000", "neighbor "+balancer4.String()+" shutdown message maintenance")
	awaitReason(t, s, "; before that: received NOTIFICATION: administrative shutdown: maintenance")
	r.vtysh("configure terminal", "router bgp 65000", "no neighbor "+balancer4.String()+" shutdown")
	awaitEstablished(t, s)
}

// A stable session ends a row of failures, which makes attempts rare.
func TestCountFailures(t *testing.T) {
	for lived, want := range map[time.Duration]int{0: 8, stable - 1: 8, stable: 1, time.Hour: 1} {
		if got := countFailures(7, lived); got != want {
			t.Errorf("%d failures after a session of %s, want %d", got, lived, want)
		}
	}
}
