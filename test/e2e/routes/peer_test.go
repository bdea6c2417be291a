// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// echoes sends datagrams from some ports, over and over. end stops, and returns how often
// all were sent: each has to be answered, and each port's by one server.
func (l *lab) echoes(t *testing.T, client, vip string) (end func() int) {
	t.Helper()
	conns := l.Sockets(t, client, vip, harness.Ports(harness.Window))
	t.Cleanup(func() { harness.CloseSockets(conns) })
	var servers map[int]string
	round := 0
	return harness.Repeat(t, time.Millisecond, func() error {
		names, err := harness.Exchange(conns, harness.Payload(round))
		if servers != nil && !maps.Equal(names, servers) {
			err = errors.Join(err, fmt.Errorf("%s: %s: answered by %v, then in round %d by %v", client, vip, servers, round, names))
		}
		servers = names
		round++
		return err
	})
}

// misbehaviour is a peer's misbehaviour, and the balancer's reason.
type misbehaviour struct {
	manner behaviour
	reason string
}

// misbehaviours are all that a peer may do wrong, from the first byte to long
// after the session is established.
var misbehaviours = map[string]misbehaviour{
	"closes at once":           {func(net.Conn) {}, "the connection"}, // closed or reset, as it has been read
	"closes after our OPEN":    {sendHalf(nil), "the connection"},
	"closes within its OPEN":   {sendHalf(message(bgpOpen, openBody())), "the connection"},
	"never speaks":             {send(), "does not respond"},
	"random bytes":             {func(c net.Conn) { send(random(1 << 16))(c) }, "received a bad message"},
	"wrong marker":             {send(bytes.Repeat([]byte{0xfe}, 16), message(bgpOpen, openBody())[16:]), "received a bad message"},
	"length 0":                 {send(bytes.Repeat([]byte{0xff}, 16), []byte{0, 0, bgpOpen}), "received a bad message"},
	"length 65535":             {send(bytes.Repeat([]byte{0xff}, 18), []byte{bgpOpen}, random(70000)), "received a bad message"},
	"unknown type":             {send(message(77, random(100))), "received a bad message"},
	"UPDATE first":             {send(message(bgpUpdate, []byte{0, 0, 0, 0})), "received a bad message: message out of order"},
	"KEEPALIVE first":          {send(message(bgpKeepalive, nil)), "received a bad message: message out of order"},
	"OPEN, then silence":       {send(message(bgpOpen, openBody())), "does not respond"},
	"OPEN of version 5":        {send(message(bgpOpen, altered(0, 5))), "received a bad message: unsupported version"},
	"OPEN of another AS":       {send(message(bgpOpen, altered(1, 1, 2, 0, 3, 192, 0, 2, 99, 14, 2, 12, 1, 4, 0, 1, 0, 1, 65, 4, 0, 0, 1, 2))), "bad peer AS: the peer is AS 258, configured is AS 64999"},
	"OPEN with hold time 1":    {send(message(bgpOpen, altered(3, 0, 1))), "received a bad message: unacceptable hold time"},
	"OPEN with identifier 0":   {send(message(bgpOpen, altered(5, 0, 0, 0, 0))), "received a bad message: bad BGP identifier"},
	"OPEN with bad parameters": {send(message(bgpOpen, altered(9, 255, 2, 255))), "received a bad message"},
	"OPEN cut short":           {send(message(bgpOpen, openBody()[:5])), "received a bad message"},
	"flaps":                    {establish(true, write()), "the connection"},
	"says CEASE":               {establish(false, write(message(bgpNotification, []byte{6, 2}))), "received NOTIFICATION: administrative shutdown"},
	"falls silent":             {establish(false, write()), "hold timer expired"},
	"UPDATE without sense":     {establish(false, write(message(bgpUpdate, []byte{0xff, 0xff, 1, 2, 3}))), "hold timer expired"},
	"UPDATEs of random bytes":  {establish(false, func(c net.Conn) { write(message(bgpUpdate, random(4000)))(c) }), "hold timer expired"},
	"UPDATE longer than 4096":  {establish(false, write(message(bgpUpdate, make([]byte, 30000)))), "received a bad message: bad message length"},
	"random once established":  {establish(false, func(c net.Conn) { write(random(1 << 16))(c) }), "received a bad message"},
	"many routes":              {establish(false, flood(floodOfRoutes)), "hold timer expired"},
	"many routes, closing":     {establish(true, flood(floodOfRoutes)), "the connection"},
}

// floodOfRoutes would fill hundreds of megabytes if they were kept;
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
	manners := map[netip.Addr]behaviour{}
	for name, m := range misbehaviours {
		a := netip.AddrFrom4([4]byte{10, 0, 2, byte(200 + len(names))})
		names, addresses = append(names, name), append(addresses, a)
		manners[a] = m.manner
	}
	topology := patient(harness.Routed(t, netlab.ECMPOptions{Router: netlab.FRR, Servers: 4}))
	addHostilePeers(&topology, addresses)
	l := bringUp(t, "hostile-peers", topology)
	h := l.State().Host("lb1")
	l.awaitVia(t, "lb1", "lb2", "lb3")
	harness.Until(t, "the good session is watched", func() bool { return l.peer(t, "lb1", l.Address("router")).BFD == bgp.BFDUp })

	r := l.startHostilePeers(t, manners)
	before := harness.Memory(t, harness.Status(t, h).PID)
	steady := l.watchRoute(t, harness.VIP4, "lb1")
	l.sendNoise(t, h.Name)
	l.CheckPackets(t, "forward_l2dsr", func() {
		visits := l.keepRequesting(t)
		l.addPeers(t, h, addresses)
		for i, a := range addresses {
			t.Run(names[i], func(t *testing.T) { l.checkHostile(t, r, a, misbehaviours[names[i]].reason) })
		}
		t.Logf("%d requests were answered meanwhile", visits())
	})
	steady()
	if good := l.peer(t, "lb1", l.Address("router")); good.State != bgp.Established || good.Flaps+good.BFDFlaps > 0 || good.RoutesAnnounced != 2 {
		t.Errorf("the good router's session: %+v", good)
	}
	after := harness.Memory(t, harness.Status(t, h).PID)
	t.Logf("the agent's memory: %d MiB, before %d MiB", after>>20, before>>20)
	if after > before+memoryOfPeers {
		t.Errorf("the agent grew from %d to %d bytes", before, after)
	}
}

// checkHostile waits until a peer has been called again after it misbehaved, each
// time after a longer pause, and checks its state.
func (l *lab) checkHostile(t *testing.T, r *hostilePeer, a netip.Addr, reason string) {
	if !await.Holds(func() bool { return len(r.connectedAt(a)) > 1 }) {
		t.Fatalf("called %d times", len(r.connectedAt(a)))
	}
	var peer bgp.PeerState
	said := func() bool {
		peer = l.peer(t, "lb1", a)
		return peer.State != bgp.Established && peer.Reason != "" && strings.Contains(peer.Reason, reason)
	}
	if !await.Holds(said) {
		t.Errorf("got %s: %q, want no session: %q", peer.State, peer.Reason, reason)
	}
	t.Logf("%q; called %d times, %d messages", peer.Reason, len(r.connectedAt(a)), peer.MessagesReceived)
	if peer.RoutesReceived > 0 {
		t.Errorf("%d routes are kept", peer.RoutesReceived)
	}
	// The pause before the fifth call is 600 ms or more: half of that, as who listens
	// may have been late.
	for calls := r.connectedAt(a); len(calls) > 4; calls = calls[1:] {
		if pause := calls[4].Sub(calls[3]); pause < 300*time.Millisecond {
			t.Errorf("called again after %s", pause)
		}
	}
}

// peer returns a balancer's state of a peer.
func (l *lab) peer(t *testing.T, balancer string, a netip.Addr) bgp.PeerState {
	t.Helper()
	h := l.State().Host(balancer)
	for _, p := range harness.Query[observe.Routes](t, h.Name, control.Dial(h.Socket).Routes).Peers {
		if p.Address == a {
			return p
		}
	}
	return bgp.PeerState{}
}

// addPeers has a balancer speak with peers of rogueASN too.
func (l *lab) addPeers(t *testing.T, h *netlab.HostState, addresses []netip.Addr) {
	t.Helper()
	config := *l.Topology.Host(h.Name).Agent.BGP
	for _, a := range addresses {
		config.Peers = append(slices.Clip(config.Peers), bgp.Peer{
			Address: a, ASN: hostileASN, HoldTime: 3 * time.Second, RestartTime: bgp.DefaultRestartTime,
		})
	}
	l.reconfigureBGP(t, h, &config)
}

// reconfigureBGP replaces the BGP section of a balancer.
func (l *lab) reconfigureBGP(t *testing.T, h *netlab.HostState, config *bgp.Config) {
	t.Helper()
	settings := *l.Topology.Host(h.Name).Agent
	settings.BGP = config
	l.Write(t, h, settings.YAML())
	harness.Until(t, h.Name+" has the new configuration", func() bool {
		s := harness.Status(t, h)
		if s.Config.Error != "" {
			t.Fatal(s.Config.Error)
		}
		return s.Config.Digest == harness.Digest(settings.YAML())
	})
}

// keepRequesting has visitors ask all the time, on connections that last and on new
// ones, without filling the machine. end stops, and returns how many requests were
// answered; each that wasn't is an error.
func (l *lab) keepRequesting(t *testing.T) (end func() int) {
	t.Helper()
	steps := []func() error{l.get(t, harness.VIP4)}
	for _, v := range l.OpenClients(t, 24) {
		steps = append(steps, v.Query)
	}
	return harness.Repeat(t, harness.Pace, steps...)
}
