// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

const (
	vip4 = "10.1.1.1/32"
	vip6 = "fd00:10:1:1::1/128"
)

var restarting = identity{asn: asn, restart: true}

// A router gets every client's path, in both families, and loses the paths of a
// client that withdraws, stops or, without graceful restart, dies.
func TestAddPath(t *testing.T) {
	startBIRD(t, "")
	r := start(t, settings(), "")
	one, two, three := connect(t, 11, restarting), connect(t, 12, restarting), connect(t, 13, identity{asn: asn})
	for _, c := range []*client{one, two, three} {
		c.announce(vip4, vip6)
		c.endOfRIB()
	}
	awaitHops(t, vip4, "10.0.2.11 10.0.2.12 10.0.2.13")
	awaitHops(t, vip6, "fd00:2::11 fd00:2::12 fd00:2::13")

	one.withdraw(vip4)
	awaitHops(t, vip4, "10.0.2.12 10.0.2.13")
	two.leave()
	awaitHops(t, vip4, "10.0.2.13")
	awaitHops(t, vip6, "fd00:2::11 fd00:2::13")
	awaitReflected(t, r, "10.1.1.1/32 via 10.0.2.13 from [127.0.1.13]\n"+
		"fd00:10:1:1::1/128 via fd00:2::11 from [127.0.1.11]\n"+
		"fd00:10:1:1::1/128 via fd00:2::13 from [127.0.1.13]\n")
	three.vanish()
	awaitHops(t, vip4, "")
	awaitHops(t, vip6, "fd00:2::11")
}

// A client whose connection is lost keeps its routes on the router until it is
// back; routes that it doesn't announce then are withdrawn.
func TestClientRestart(t *testing.T) {
	startBIRD(t, "")
	r := start(t, settings(), "")
	before := connect(t, 11, restarting).announces(vip4, "10.1.1.2/32")
	awaitHops(t, vip4, "10.0.2.11")
	awaitHops(t, "10.1.1.2/32", "10.0.2.11")
	changes := watchRoute(t, vip4)

	before.vanish()
	await.True(t, "loss of the client", func() bool { return !established(r, clientAddress(11)) })
	awaitReflected(t, r, "10.1.1.1/32 via 10.0.2.11 from [127.0.1.11] stale [127.0.1.11]\n"+
		"10.1.1.2/32 via 10.0.2.11 from [127.0.1.11] stale [127.0.1.11]\n")
	connect(t, 11, restarting).announces(vip4)
	awaitHops(t, "10.1.1.2/32", "")
	awaitHops(t, vip4, "10.0.2.11")
	if n := changes(); n > 0 {
		t.Errorf("the router's route changed %d times", n)
	}
	await.True(t, "the client's state", func() bool { return established(r, clientAddress(11)) }) // after its routes
	if p, _ := state(r, clientAddress(11)); p.Flaps != 1 || !p.Dynamic || p.State != bgp.Established {
		t.Errorf("the client is %+v", p)
	}
}

// A reflector that is replaced leaves its routes with the router, and the next one
// announces nothing before the clients are back, in whatever order.
func TestReflectorRestart(t *testing.T) {
	startBIRD(t, "")
	book := filepath.Join(t.TempDir(), "clients")
	before := start(t, settings(), book)
	for n := 11; n <= 13; n++ {
		connect(t, n, restarting).announces(vip4, vip6)
	}
	awaitHops(t, vip4, "10.0.2.11 10.0.2.12 10.0.2.13")
	awaitHops(t, vip6, "fd00:2::11 fd00:2::12 fd00:2::13")
	awaitSaved(t, book, 3)
	changed4, changed6 := watchRoute(t, vip4), watchRoute(t, vip6)

	before.Close()
	after := start(t, settings(), book)
	announced, fourth := []string{vip4}, (*client)(nil) // it is new
	for n := 14; n >= 11; n-- {
		if after.Ready() {
			t.Errorf("the router is connected before client %d is back", n)
		}
		c := connect(t, n, restarting)
		c.announces(announced...)
		if fourth == nil {
			announced, fourth = []string{vip4, vip6}, c
		}
	}
	awaitHops(t, vip4, "10.0.2.11 10.0.2.12 10.0.2.13 10.0.2.14")
	awaitHops(t, vip6, "fd00:2::11 fd00:2::12 fd00:2::13")
	if a, b := changed4(), changed6(); a > 1 || b > 0 { // BIRD 2.0.8 changes IPv6 routes hop by hop
		t.Errorf("the router's routes changed %d and %d times", a, b)
	}
	fourth.announce(vip6)
	awaitHops(t, vip6, "fd00:2::11 fd00:2::12 fd00:2::13 fd00:2::14")
}

// A router without graceful restart gets later changes, too, and no
// End-of-RIB.
func TestRouterWithoutGracefulRestart(t *testing.T) {
	for name, off := range map[string]struct {
		bird        string
		restartTime time.Duration
	}{"the router": {"graceful restart off;", 30 * time.Second}, "the reflector": {"", 0}} {
		t.Run(name, func(t *testing.T) {
			startBIRD(t, off.bird)
			config := settings()
			config.Routers[0].RestartTime = off.restartTime
			r := start(t, config, "")
			c := connect(t, 11, restarting)
			c.announce("10.1.1.1/32", "10.1.1.2/32")
			awaitHops(t, "10.1.1.1/32", "10.0.2.11")
			c.withdraw("10.1.1.1/32")
			awaitHops(t, "10.1.1.1/32", "")
			awaitHops(t, "10.1.1.2/32", "10.0.2.11")
			if p, ok := state(r, routerAddress); !ok || p.GracefulRestart || p.Flaps > 0 {
				t.Errorf("%+v", p)
			}
			c.leave()
		})
	}
}

// A client that connects again while its former connection is still there for the reflector replaces that: at once with graceful
// restart (RFC 4724 §5), so that the router's route stays; otherwise only if it has lost that connection.
func TestClientCollision(t *testing.T) {
	startBIRD(t, "")
	r := start(t, settings(), "")
	connect(t, 11, restarting).announces(vip4)
	awaitHops(t, vip4, "10.0.2.11")
	changes := watchRoute(t, vip4)
	connect(t, 11, restarting).announces(vip4)
	await.True(t, "the next session", func() bool { p, _ := state(r, clientAddress(11)); return p.Flaps == 1 && p.State == bgp.Established })
	awaitReflected(t, r, "10.1.1.1/32 via 10.0.2.11 from [127.0.1.11]\n")
	if n := changes(); n > 0 {
		t.Errorf("the router's route changed %d times", n)
	}
	plain := identity{asn: asn}
	connect(t, 12, plain).announces(vip4)
	awaitHops(t, vip4, "10.0.2.11 10.0.2.12")
	if said := connect(t, 12, plain).awaitEnd(); !bytes.Equal(said, []byte{6, 7}) {
		t.Errorf("NOTIFICATION % x, want connection collision", said)
	}
	if p, _ := state(r, clientAddress(12)); p.Flaps > 0 || p.State != bgp.Established {
		t.Errorf("the client is %+v", p)
	}
}
