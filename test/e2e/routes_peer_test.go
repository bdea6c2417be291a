// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// misbehaviour is what a peer does, and what the balancer says of it.
type misbehaviour struct {
	manner manner
	reason string
}

// misbehaviours are all that a peer may do wrong, from the first byte to long
// after the session is established.
var misbehaviours = map[string]misbehaviour{
	"closes at once":           {func(net.Conn) {}, "the connection"}, // closed or reset, as it has been read
	"closes after our OPEN":    {half(nil), "the connection"},
	"closes within its OPEN":   {half(message(bgpOpen, openBody())), "the connection"},
	"never speaks":             {says(), "doesn't answer"},
	"random bytes":             {func(c net.Conn) { says(random(1 << 16))(c) }, "peer sent a bad message"},
	"wrong marker":             {says(bytes.Repeat([]byte{0xfe}, 16), message(bgpOpen, openBody())[16:]), "peer sent a bad message"},
	"length 0":                 {says(bytes.Repeat([]byte{0xff}, 16), []byte{0, 0, bgpOpen}), "peer sent a bad message"},
	"length 65535":             {says(bytes.Repeat([]byte{0xff}, 18), []byte{bgpOpen}, random(70000)), "peer sent a bad message"},
	"unknown type":             {says(message(77, random(100))), "peer sent a bad message"},
	"UPDATE first":             {says(message(bgpUpdate, []byte{0, 0, 0, 0})), "peer sent a bad message: message out of order"},
	"KEEPALIVE first":          {says(message(bgpKeepalive, nil)), "peer sent a bad message: message out of order"},
	"OPEN, then silence":       {says(message(bgpOpen, openBody())), "doesn't answer"},
	"OPEN of version 5":        {says(message(bgpOpen, altered(0, 5))), "peer sent a bad message: unsupported version"},
	"OPEN of another AS":       {says(message(bgpOpen, altered(1, 1, 2, 0, 3, 192, 0, 2, 99, 14, 2, 12, 1, 4, 0, 1, 0, 1, 65, 4, 0, 0, 1, 2))), "bad peer AS: it is AS 258, configured is AS 64999"},
	"OPEN with hold time 1":    {says(message(bgpOpen, altered(3, 0, 1))), "peer sent a bad message: unacceptable hold time"},
	"OPEN with identifier 0":   {says(message(bgpOpen, altered(5, 0, 0, 0, 0))), "peer sent a bad message: bad BGP identifier"},
	"OPEN with bad parameters": {says(message(bgpOpen, altered(9, 255, 2, 255))), "peer sent a bad message"},
	"OPEN cut short":           {says(message(bgpOpen, openBody()[:5])), "peer sent a bad message"},
	"flaps":                    {establishes(true, write()), "the connection"},
	"says CEASE":               {establishes(false, write(message(bgpNotification, []byte{6, 2}))), "peer says: administrative shutdown"},
	"falls silent":             {establishes(false, write()), "hold timer expired"},
	"UPDATE without sense":     {establishes(false, write(message(bgpUpdate, []byte{0xff, 0xff, 1, 2, 3}))), "hold timer expired"},
	"UPDATEs of random bytes":  {establishes(false, func(c net.Conn) { write(message(bgpUpdate, random(4000)))(c) }), "hold timer expired"},
	"UPDATE longer than 4096":  {establishes(false, write(message(bgpUpdate, make([]byte, 30000)))), "hold timer expired"},
	"random once established":  {establishes(false, func(c net.Conn) { write(random(1 << 16))(c) }), "peer sent a bad message"},
	"many routes":              {establishes(false, flood(floodOfRoutes)), "hold timer expired"},
	"many routes, closing":     {establishes(true, flood(floodOfRoutes)), "the connection"},
}

// floodOfRoutes would fill hundreds of megabytes if somebody kept them;
// memoryOfPeers bounds by how much an agent may grow while all these peers do their
// worst: a megabyte for each peer, twice as the garbage collector leaves it, and
// half of that again.
const (
	floodOfRoutes = 200_000
	memoryOfPeers = 96 << 20
)

// Peers that do everything wrong have a balancer's sessions with a good router,
// its routes and its packets undisturbed, and its memory bounded.
func TestHostilePeers(t *testing.T) {
	names, addresses := []string{}, []netip.Addr{}
	manners := map[netip.Addr]manner{}
	for name, m := range misbehaviours {
		a := netip.AddrFrom4([4]byte{10, 0, 2, byte(200 + len(names))})
		names, addresses = append(names, name), append(addresses, a)
		manners[a] = m.manner
	}
	topology := routed(t, netlab.ECMPOptions{Router: netlab.FRR, Servers: 4})
	addRogue(&topology, addresses)
	l := bringUp(t, "hostile-peers", topology)
	h := l.State().Host("lb1")
	l.awaitVia(t, "lb1", "lb2", "lb3")
	until(t, "the good session is watched", func() bool { return l.peer(t, "lb1", l.address("router")).BFD == bgp.BFDUp })

	r := l.unleash(t, manners)
	before := memory(t, status(t, h).PID)
	steady := l.watchRoute(t, vip4, "lb1")
	l.noise(t, h.Name)
	l.account(t, "forward_l2dsr", func() {
		visits := l.keepVisiting(t)
		l.addPeers(t, h, addresses)
		for i, a := range addresses {
			t.Run(names[i], func(t *testing.T) { l.checkHostile(t, r, a, misbehaviours[names[i]].reason) })
		}
		t.Logf("%d requests were answered meanwhile", visits())
	})
	steady()
	if good := l.peer(t, "lb1", l.address("router")); good.State != bgp.Established || good.Flaps+good.BFDFlaps > 0 || good.RoutesAnnounced != 2 {
		t.Errorf("the good router's session: %+v", good)
	}
	after := memory(t, status(t, h).PID)
	t.Logf("the agent's memory: %d MiB, before %d MiB", after>>20, before>>20)
	if after > before+memoryOfPeers {
		t.Errorf("the agent grew from %d to %d bytes", before, after)
	}
}

// hostileTime is enough for two silences that the balancer puts up with, and for
// the pauses after them.
const hostileTime = 30 * time.Second

// checkHostile waits until a peer has been called again after it misbehaved, each
// time after a longer pause, and looks at what is said of it.
func (l *lab) checkHostile(t *testing.T, r *rogue, a netip.Addr, reason string) {
	if !within(hostileTime, func() bool { return len(r.called(a)) > 1 }) {
		t.Fatalf("called %d times", len(r.called(a)))
	}
	var peer bgp.PeerState
	said := func() bool {
		peer = l.peer(t, "lb1", a)
		return peer.State != bgp.Established && peer.Reason != "" && strings.Contains(peer.Reason, reason)
	}
	if !within(hostileTime, said) {
		t.Errorf("got %s: %q, want no session: %q", peer.State, peer.Reason, reason)
	}
	t.Logf("%q; called %d times, %d messages", peer.Reason, len(r.called(a)), peer.MessagesReceived)
	if peer.RoutesReceived > 0 {
		t.Errorf("%d routes are kept", peer.RoutesReceived)
	}
	// The pause before the fifth call is 600 ms or more: half of that, as who listens
	// may have been late.
	for calls := r.called(a); len(calls) > 4; calls = calls[1:] {
		if pause := calls[4].Sub(calls[3]); pause < 300*time.Millisecond {
			t.Errorf("called again after %s", pause)
		}
	}
}

// peer is what a balancer says of one.
func (l *lab) peer(t *testing.T, balancer string, a netip.Addr) bgp.PeerState {
	t.Helper()
	h := l.State().Host(balancer)
	for _, p := range ask[observe.Routes](t, h.Name, observe.Dial(h.Socket).Routes).Peers {
		if p.Address == a {
			return p
		}
	}
	return bgp.PeerState{}
}

// addPeers has a balancer speak with peers of rogueASN too.
func (l *lab) addPeers(t *testing.T, h *netlab.HostState, addresses []netip.Addr) {
	t.Helper()
	config := *l.topology.Host(h.Name).Agent.BGP
	for _, a := range addresses {
		config.Peers = append(slices.Clip(config.Peers), bgp.Peer{
			Address: a, ASN: rogueASN, HoldTime: 3 * time.Second, RestartTime: bgp.DefaultRestartTime,
		})
	}
	l.reconfigureBGP(t, h, &config)
}

// reconfigureBGP replaces the BGP section of a balancer.
func (l *lab) reconfigureBGP(t *testing.T, h *netlab.HostState, config *bgp.Config) {
	t.Helper()
	settings := *l.topology.Host(h.Name).Agent
	settings.BGP = config
	l.write(t, h, settings.YAML())
	until(t, h.Name+" has the new configuration", func() bool {
		s := status(t, h)
		if s.Config.Error != "" {
			t.Fatal(s.Config.Error)
		}
		return s.Config.Digest == digest(settings.YAML())
	})
}
