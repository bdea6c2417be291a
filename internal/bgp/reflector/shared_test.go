// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/reflector"
	"fairlead.io/fairlead/test/await"
)

// Several clients with one address, such as pods of a node that translates
// theirs, are clients of their own: the router has each one's path, and loses only
// the path of the client that leaves.
func TestSharedAddress(t *testing.T) {
	startBIRD(t, "")
	r := start(t, settings(), "")
	node := clientAddress(100)
	var clients []*client
	for n := 11; n <= 13; n++ {
		c := connectFrom(t, node, n, restarting).announces(vip4, vip6)
		clients = append(clients, c)
	}
	awaitHops(t, vip4, "10.0.2.11 10.0.2.12 10.0.2.13")
	awaitHops(t, vip6, "fd00:2::11 fd00:2::12 fd00:2::13")
	if got := identities(r); !slices.Equal(got, []string{"127.0.1.100 10.0.2.11", "127.0.1.100 10.0.2.12", "127.0.1.100 10.0.2.13"}) {
		t.Errorf("clients are %q", got)
	}

	clients[1].leave()
	awaitHops(t, vip4, "10.0.2.11 10.0.2.13")
	awaitHops(t, vip6, "fd00:2::11 fd00:2::13")
	connectFrom(t, node, 12, restarting).announces(vip4)
	awaitHops(t, vip4, "10.0.2.11 10.0.2.12 10.0.2.13")
	for _, p := range r.Peers() {
		if p.Flaps > 0 {
			t.Errorf("client %s was disturbed: %+v", p.RouterID, p)
		}
	}
}

// One of them that restarts is distinguished from the others, and keeps its routes.
func TestSharedAddressRestart(t *testing.T) {
	startBIRD(t, "")
	r := start(t, settings(), "")
	node := clientAddress(100)
	other, before := connectFrom(t, node, 12, restarting), connectFrom(t, node, 11, restarting)
	for _, c := range []*client{other, before} {
		c.announce(vip4)
		c.endOfRIB()
	}
	awaitHops(t, vip4, "10.0.2.11 10.0.2.12")
	changes := watchRoute(t, vip4)
	before.vanish()
	awaitReflected(t, r, "10.1.1.1/32 via 10.0.2.11 from [127.0.1.100] stale [127.0.1.100]\n"+
		"10.1.1.1/32 via 10.0.2.12 from [127.0.1.100]\n")
	connectFrom(t, node, 11, restarting).announces(vip4)
	awaitReflected(t, r, "10.1.1.1/32 via 10.0.2.11 from [127.0.1.100]\n"+
		"10.1.1.1/32 via 10.0.2.12 from [127.0.1.100]\n")
	if n := changes(); n > 0 {
		t.Errorf("the router's route changed %d times", n)
	}
}

// The next reflector waits for each of them.
func TestReflectorRestartSharedAddress(t *testing.T) {
	startBIRD(t, "")
	book := filepath.Join(t.TempDir(), "clients")
	before := start(t, settings(), book)
	node := clientAddress(100)
	for _, n := range []int{11, 12} {
		connectFrom(t, node, n, restarting).announces(vip4)
	}
	awaitHops(t, vip4, "10.0.2.11 10.0.2.12")
	awaitSaved(t, book, 2)
	changes := watchRoute(t, vip4)
	before.Close()
	after := start(t, settings(), book)
	for _, n := range []int{12, 11} {
		if after.Ready() {
			t.Errorf("the router is connected before client %d is back", n)
		}
		connectFrom(t, node, n, restarting).announces(vip4)
	}
	await.True(t, "session with the router", func() bool { return after.Ready() && established(after, routerAddress) })
	connect(t, 13, restarting).announce(vip4)
	awaitHops(t, vip4, "10.0.2.11 10.0.2.12 10.0.2.13")
	if n := changes(); n > 1 { // the third client is new
		t.Errorf("the router's route changed %d times", n)
	}
}

// A connection without an OPEN is closed after a while and is not a client. One whose
// first message is another one gets a NOTIFICATION.
func TestConnectionsWithoutOpen(t *testing.T) {
	r := start(t, settings(), "")
	silent := call(t, 11)
	wrong := call(t, 12)
	wrong.send(keepalive, nil)
	const stateError = 5 // finite state machine error (RFC 4271 §4.5)
	if said := wrong.awaitEnd(); !bytes.HasPrefix(said, []byte{stateError}) {
		t.Errorf("it got NOTIFICATION % x", said)
	}
	if said := silent.awaitEnd(); said != nil {
		t.Errorf("the silent one got NOTIFICATION % x", said)
	}
	await.True(t, "no client", func() bool { return len(identities(r)) == 0 })
	if r.Refused() != 1 {
		t.Errorf("%d connections refused, want 1", r.Refused())
	}
}

// identities are the clients' addresses and router ids.
func identities(r *reflector.Reflector) (all []string) {
	for _, p := range r.Peers() {
		if p.Dynamic {
			all = append(all, name(p))
		}
	}
	return all
}

func name(p bgp.PeerState) string {
	id := "none"
	if p.RouterID != (netip.Addr{}) {
		id = p.RouterID.String()
	}
	return p.Address.String() + " " + id
}
