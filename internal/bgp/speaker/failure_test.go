// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
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
	peer.Password = secret(t, "wrong")
	s := open(t, peer)
	set(t, s, "10.1.1.1")
	awaitReason(t, s, "timed out: wrong password, or unreachable")
	if err := os.WriteFile(peer.Password.File, []byte("correct"), 0o600); err != nil { // read at the next try
		t.Fatal(err)
	}
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	if err := os.Remove(peer.Password.File); err != nil {
		t.Fatal(err)
	}
	r.vtysh("clear bgp *")
	awaitReason(t, s, "no such file")
}

func TestPasswordFromTheEnvironmentOverIPv6(t *testing.T) {
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
	awaitReason(t, s, "waits for the peer's call")
	if err := os.WriteFile(peer.Password.File, []byte("correct"), 0o600); err != nil { // read every few seconds
		t.Fatal(err)
	}
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
}

func TestStates(t *testing.T) {
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65099", "passive"))
	for name, test := range map[string]struct {
		peer   bgp.Peer
		reason string
	}{
		"the router expects another ASN": {
			router(router4, 65000), "peer says: bad peer AS: it doesn't expect AS 65021 here, and says that it is AS 65000"},
		"the router has another ASN": {
			router(router4, 65055), "bad peer AS: it is AS 65000, configured is AS 65055"},
		"nobody there":           {router(netip.MustParseAddr("10.0.2.77"), 65000), "no route to host"},
		"no way there":           {router(netip.MustParseAddr("10.99.0.1"), 65000), "network is unreachable"},
		"nobody listens":         {router(balancer4, 65000), "connection refused"},
		"router doesn't know us": {router(router6, 65000), "peer closed the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, test.peer)
			if s.Peers()[0].Reason != "waits for the first routes" {
				t.Errorf("%+v", s.Peers()[0])
			}
			set(t, s, "10.1.1.1")
			awaitReason(t, s, test.reason)
			await(t, "the next try", func() bool { return s.Peers()[0].NextTry.After(time.Now()) })
		})
	}
	r.stop("bgpd")
}

func TestHoldTimer(t *testing.T) {
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "passive"))
	s := open(t, router(router4, 65000))
	set(t, s, "10.1.1.1")
	awaitEstablished(t, s)
	r.freeze("bgpd")
	awaitReason(t, s, "hold timer expired")
	if state := s.Peers()[0]; state.Flaps != 1 || state.Since.IsZero() {
		t.Errorf("%+v", state)
	}
}

func TestPeerThatCloses(t *testing.T) {
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "passive"))
	s := open(t, router(router4, 65000))
	set(t, s, "10.1.1.1")
	awaitEstablished(t, s)
	r.vtysh("clear bgp *")
	awaitReason(t, s, "peer says: administrative reset")
	awaitEstablished(t, s)
	r.stop("bgpd") // by SIGKILL
	await(t, "the loss", func() bool { return s.Peers()[0].Flaps == 2 })
	awaitReason(t, s, "connection refused")
}
