// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// asking is the case's service with a backend of its own and one on each of two
// other nodes, of which the one at node4 or node6 is next in the round.
func (c natCase) asking() *lb.Service {
	svc := c.service()
	for _, node := range []netip.Addr{c.relayed().Backends[0].Node.Next(), c.relayed().Backends[0].Node} {
		b := svc.Backends[len(svc.Backends)-1]
		b.Address, b.Node = b.Address.Next(), node
		svc.Backends = append(svc.Backends, b)
	}
	return svc
}

// withHops is the client's packet with another hop limit, from a node.
func (c natCase) withHops(hops uint8, from lb.MAC) frame {
	f := c.fromClient(tcpACK)
	f.source = from
	f.ip = flowIP(c.vip.Protocol, c.client, netip.AddrPortFrom(c.vip.Address, c.vip.Port), hops, tcpACK)
	return f
}

// lookedUp is the client's packet on its way to the next node, with that hop limit.
func (c natCase) lookedUp(hops uint8) frame {
	f := c.withHops(hops, ownMAC)
	f.destination = macOf(c.relayed().Backends[0].Node)
	return f
}

// tcpRelayCases are those of relayCases that have connections.
func tcpRelayCases() []natCase {
	return slices.DeleteFunc(relayCases(), func(c natCase) bool { return c.vip.Protocol != lb.TCP })
}

// A packet of a connection without a session here goes to the next node, with as many
// hops as there are nodes to ask, and the last one refuses it.
func TestAskAround(t *testing.T) {
	p, hops := newTestPlane(t)
	all := lookupHops(2)
	for _, c := range tcpRelayCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			svc := c.asking()
			svc.Backends[1].Weight, svc.Backends[2].Weight = 0, 0 // the ring names the own backend
			update(t, p, svc)
			defer remove(t, p, c.vip)
			last := macOf(svc.Backends[1].Node)
			wantFrame(t, p, c.fromClient(tcpACK), c.lookedUp(all), xdpTX, "forward_lookup")
			wantFrame(t, p, c.withHops(all, last), c.lookedUp(all-1), xdpTX, "forward_lookup")
			wantFrame(t, p, c.withHops(all-1, last), c.lookedUp(all-2), xdpTX, "forward_lookup")
			wantVerdict(t, p, c.withHops(all-2, last).build(), xdpTX, "answer_reset")

			hops.lost[svc.Backends[1].Node], hops.lost[svc.Backends[2].Node] = true, true
			defer clear(hops.lost)
			update(t, p, svc)
			wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpTX, "answer_reset")
		})
	}
}

// A node that takes all others for dead, as one that has just come back may do, asks
// them all the same; and no packet is refused while it is not known how to reach one.
func TestAskThoughDown(t *testing.T) {
	p, hops := newTestPlane(t)
	for _, c := range tcpRelayCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			svc := c.asking()
			svc.Backends[1].Down, svc.Backends[2].Down = true, true
			update(t, p, svc)
			defer remove(t, p, c.vip)
			wantFrame(t, p, c.fromClient(tcpACK), c.lookedUp(lookupHops(2)), xdpTX, "forward_lookup")

			hops.pending[svc.Backends[1].Node], hops.pending[svc.Backends[2].Node] = true, true
			defer clear(hops.pending)
			update(t, p, svc)
			wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpDrop, "drop_no_session")
		})
	}
}

// A node whose backends are down is left out, also if backends that left the service before
// are on it, as their health isn't checked. It is included again when one of its backends
// is up, and it was never doubted because of one that hasn't been up yet.
func TestLookupSkipsDeadNodes(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range tcpRelayCases() {
		svc := c.asking()
		last, next := &svc.Backends[1], &svc.Backends[2]
		last.Weight, next.Weight = 0, 0 // the ring names the own backend
		left := *next
		left.Address = left.Address.Next()
		update(t, p, withBackends(svc, svc.Backends[0], *last, *next, left))
		starting := left
		starting.Address, starting.Down = left.Address.Next(), true
		for _, step := range []struct {
			name     string
			backends []lb.Backend
			lookedUp netip.Addr
			nodes    uint8
		}{
			{"one has left", []lb.Backend{svc.Backends[0], *last, *next}, next.Node, 2},
			{"another one isn't up yet", []lb.Backend{svc.Backends[0], *last, starting}, next.Node, 2},
			{"the node's are back", []lb.Backend{svc.Backends[0], *last, *next, starting}, next.Node, 2},
			{"they are down", []lb.Backend{svc.Backends[0], *last, down(*next), starting}, last.Node, 1},
			{"all have left", []lb.Backend{svc.Backends[0], *last}, last.Node, 1},
			{"a new one is up", []lb.Backend{svc.Backends[0], *last, up(starting)}, next.Node, 2},
		} {
			update(t, p, withBackends(svc, step.backends...))
			want := c.lookedUp(lookupHops(step.nodes))
			want.destination = macOf(step.lookedUp)
			if !t.Run(step.name, func(t *testing.T) { wantFrame(t, p, c.fromClient(tcpACK), want, xdpTX, "forward_lookup") }) {
				break
			}
		}
		remove(t, p, c.vip)
	}
}

func withBackends(svc *lb.Service, backends ...lb.Backend) *lb.Service {
	other := *svc
	other.Backends = backends
	return &other
}

func down(b lb.Backend) lb.Backend { b.Down = true; return b }

func up(b lb.Backend) lb.Backend { b.Down = false; return b }

// Between the writing of a round and that of its view there may be packets: no client
// refuses them, as they are about to find both.
func TestAskByOtherViewsRound(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range tcpRelayCases() {
		svc := c.asking()
		svc.Backends[1].Weight, svc.Backends[2].Weight = 0, 0
		update(t, p, svc)
		number, field := serviceNumber(t, p, c.vip), unsafe.Offsetof(table.BalancerService{}.PeerLookup)
		for _, next := range []uint16{0, uint16(len(svc.Backends))} { // an own backend, and one to come
			if err := table.WriteService(p.Tables, number, field, table.BalancerPeerLookup{Next: next, Peers: 2}); err != nil {
				t.Fatal(err)
			}
			wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpDrop, "drop_no_session")
		}
		remove(t, p, c.vip)
	}
}

// A node that knows of fewer nodes may be next, and have sent the segment: another one is
// looked up.
func TestAskAnotherThanSender(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range tcpRelayCases() {
		svc := c.asking()
		update(t, p, svc)
		next, last := macOf(svc.Backends[2].Node), macOf(svc.Backends[1].Node)
		for _, hops := range []uint8{lookupHops(2), lookupHops(1)} {
			want := c.lookedUp(hops - 1)
			want.destination = last
			wantFrame(t, p, c.withHops(hops, next), want, xdpTX, "forward_lookup")
			want = c.lookedUp(hops - 1)
			wantFrame(t, p, c.withHops(hops, last), want, xdpTX, "forward_lookup")
		}
		remove(t, p, c.vip)
	}
}

// A segment that doesn't fit on the way to the next node isn't refused: its sender is
// gets the MTU.
func TestAskTooBig(t *testing.T) {
	p, hops := newTestPlane(t)
	hops.mtu = 1400
	for _, c := range tcpRelayCases() {
		svc := c.asking()
		svc.Backends[1].Weight, svc.Backends[2].Weight = 0, 0
		update(t, p, svc)
		c.payload = strings.Repeat("x", 1420)
		wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpTX, "answer_too_big")
		remove(t, p, c.vip)
	}
}

// A segment that would go back to the node that it came from is looked up, too; one
// that is being looked up already isn't sent where the ring says.
func TestAskInsteadOfReturning(t *testing.T) {
	p, _ := newTestPlane(t)
	all := lookupHops(2)
	for _, c := range tcpRelayCases() {
		svc := c.asking()
		svc.Backends[0].Weight, svc.Backends[2].Weight = 0, 0
		update(t, p, svc)
		named := macOf(svc.Backends[1].Node)
		wantFrame(t, p, c.withHops(60, named), c.lookedUp(all), xdpTX, "forward_lookup")
		want := c.lookedUp(all)
		want.destination = named
		wantFrame(t, p, c.fromClient(tcpACK), want, xdpTX, "forward_relay")
		want = c.lookedUp(all)
		wantFrame(t, p, c.withHops(all+1, clientMAC), want, xdpTX, "forward_lookup")
		remove(t, p, c.vip)
	}
}

// A node that has the connection takes its segment, however it comes.
func TestAskedNodeKnows(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range tcpRelayCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			update(t, p, c.service())
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			port := begin(t, p, c)
			confirmSessions(t, p)
			update(t, p, c.asking())
			want := c.atServer(tcpACK, port)
			want.ip = flowIP(c.vip.Protocol, netip.AddrPortFrom(c.snat(), port), c.backend, 4, tcpACK)
			wantFrame(t, p, c.withHops(5, macOf(node4)), want, xdpTX, "forward_nat")
		})
	}
}

// What begins a flow is never looked up, whatever its hop limit; and a flood of
// segments isn't, beyond a limit of its own.
func TestAskLimits(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		svc := c.asking()
		svc.Backends[1].Weight, svc.Backends[2].Weight = 0, 0
		update(t, p, svc)
		first := c.withHops(6, clientMAC)
		first.ip = flowIP(c.vip.Protocol, c.client, netip.AddrPortFrom(c.vip.Address, c.vip.Port), 6, tcpSYN)
		wantVerdict(t, p, first.build(), xdpTX, "forward_nat")
		endAllSessions(t, p)
		if c.vip.Protocol == lb.TCP {
			setLimit(t, p, table.BalancerRateRATE_LOOKUP, ^uint64(0))
			wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpDrop, "drop_answer_limit")
			setLimit(t, p, table.BalancerRateRATE_LOOKUP, 0)
			wantFrame(t, p, c.withHops(6, clientMAC), c.lookedUp(5), xdpTX, "forward_lookup")
		}
		remove(t, p, c.vip)
	}
}

// A flood of segments to one service leaves the look-ups of others.
func TestLookupLimitOfAService(t *testing.T) {
	p, _ := newTestPlane(t)
	cases := tcpRelayCases()
	for i := range cases {
		svc := cases[i].asking()
		svc.Backends[1].Weight, svc.Backends[2].Weight = 0, 0
		update(t, p, svc)
	}
	flooded, other := cases[0], cases[1]
	used := func(arrival uint64) {
		if err := p.Tables.Maps.Lookups.Put(serviceNumber(t, p, flooded.vip), arrival); err != nil {
			t.Fatal(err)
		}
	}
	dropped := false
	for range 20 { // the limit has to be still used up when the packet comes
		// The program's clock is up to a tick behind, and more than two windows ahead count as none.
		used(monotonic(t)<<table.BalancerLimitTimeLIMIT_TIME_SHIFT + limitWindow + limitWindow/2)
		verdict, _ := run(t, p, flooded.fromClient(tcpACK).build())
		if dropped = verdict == xdpDrop; dropped {
			break
		}
	}
	if !dropped {
		t.Error("look-ups beyond the service's limit are forwarded")
	}
	wantVerdict(t, p, other.fromClient(tcpACK).build(), xdpTX, "forward_lookup")
	used(0)
	wantVerdict(t, p, flooded.fromClient(tcpACK).build(), xdpTX, "forward_lookup")
}

// netNode is a node of a cluster, with a pod of its own.
type netNode struct {
	plane *xdp.Unattached
	hops  *staticHops
	node  netip.Addr
	pod   netip.Addr
	// serving says that the pod takes new connections, dead that the node has no power.
	serving, dead bool
}

// netNodes are a cluster's nodes on one network.
type netNodes struct {
	c     natCase
	nodes []*netNode
	// fresh is the address of the next new pod.
	fresh netip.Addr
}

func newNetNodes(t *testing.T, c natCase, count int) *netNodes {
	n := &netNodes{c: c, fresh: c.backend.Addr()}
	node := c.relayed().Backends[0].Node
	for range count {
		n.nodes = append(n.nodes, &netNode{node: node, serving: true})
		n.replace(len(n.nodes) - 1)
		node = node.Next()
	}
	for i := range n.nodes {
		n.start(t, i)
	}
	return n
}

// replace gives a node another pod. The one that it had leaves the service, and keeps its
// connections.
func (n *netNodes) replace(i int) {
	n.nodes[i].pod, n.fresh = n.fresh, n.fresh.Next()
}

// start makes a node that knows nothing of what was.
func (n *netNodes) start(t *testing.T, i int) {
	one := n.nodes[i]
	one.plane, one.hops = newTestPlane(t)
	one.hops.source = macOf(one.node)
	one.dead = false
	n.update(t, i)
}

// update updates a node's service to the present pods.
func (n *netNodes) update(t *testing.T, i int) {
	t.Helper()
	svc := n.c.service()
	b := svc.Backends[0]
	svc.Backends = nil
	for j, other := range n.nodes {
		b.Address, b.Node, b.Weight, b.Down = other.pod, netip.Addr{}, 0, other.dead
		if j != i {
			b.Node = other.node
		}
		if other.serving {
			b.Weight = 1
		}
		svc.Backends = append(svc.Backends, b)
	}
	update(t, n.nodes[i].plane, svc)
}

func (n *netNodes) tellAll(t *testing.T) {
	for i := range n.nodes {
		if !n.nodes[i].dead {
			n.update(t, i)
		}
	}
}

// those are the nodes of which that holds.
func (n *netNodes) those(such func(*netNode) bool) (list []int) {
	for i, one := range n.nodes {
		if such(one) {
			list = append(list, i)
		}
	}
	return list
}

func (n *netNodes) alive() []int { return n.those(func(o *netNode) bool { return !o.dead }) }

// takers are the nodes whose pods get new connections.
func (n *netNodes) takers() []int {
	return n.those(func(o *netNode) bool { return !o.dead && o.serving })
}

// podPlace says which pod something gets to: the one with that MAC address, on a node.
type podPlace struct {
	node int
	mac  lb.MAC
}

// refused is where a packet without a session gets.
var refused = podPlace{node: -1}

// send carries a client's packet to a node and on from node to node. It returns which pod
// gets it.
func (n *netNodes) send(t *testing.T, at int, f frame) podPlace {
	t.Helper()
	f.destination = macOf(n.nodes[at].node)
	in := f.build()
	for range len(n.nodes) + 2 { // the first one, and all once
		if n.nodes[at].dead {
			t.Fatalf("node %d gets a segment, and is dead", at)
		}
		verdict, out := run(t, n.nodes[at].plane, in)
		if verdict != xdpTX {
			t.Fatalf("node %d: verdict %d", at, verdict)
		}
		if n.refuses(out) {
			return refused
		}
		to := lb.MAC(out[:6])
		next := slices.IndexFunc(n.nodes, func(o *netNode) bool { return macOf(o.node) == to })
		if next < 0 {
			return podPlace{at, to}
		}
		at, in = next, out
	}
	t.Fatal("the packet goes round and round")
	return refused
}

// refuses reports whether a frame is a reset of the VIP.
func (n *netNodes) refuses(out []byte) bool {
	flags := 14 + 20 + 13
	if n.c.vip.Address.Is6() {
		flags += 20
	}
	return out[flags]&tcpRST != 0
}

// Connections reach their pods through whichever node, while pods come and go and nodes
// die and come back without any history; those without a session are refused.
func TestAskedConnectionsSurvive(t *testing.T) {
	for _, c := range tcpRelayCases() {
		for seed := range uint64(max(1, repeated(4))) {
			t.Run(fmt.Sprint(c.vip, " ", seed), func(t *testing.T) { surviveAsked(t, c, seed) })
		}
	}
}

func surviveAsked(t *testing.T, c natCase, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	n := newNetNodes(t, c, 3+int(seed)%3)
	one := func(list []int) int { return list[random.IntN(len(list))] }
	type connection struct {
		natCase
		pod podPlace
	}
	var open []connection
	for port := range uint16(60) {
		i := random.IntN(len(n.nodes))
		node := n.nodes[i]
		switch action := random.IntN(7); {
		case action == 0 && !node.dead: // a pod takes new connections, or none any more
			node.serving = !node.serving || len(n.takers()) == 1
			n.tellAll(t)
		case action == 1 && !node.dead:
			n.replace(i)
			n.tellAll(t)
		case action == 2 && node.dead:
			n.replace(i)
			n.start(t, i)
			n.tellAll(t)
		case action == 2 && len(n.alive()) > 2 && len(n.takers()) > 1:
			node.dead = true
			open = slices.DeleteFunc(open, func(o connection) bool { return o.pod.node == i })
			n.tellAll(t)
		case action > 2 && len(n.takers()) > 0:
			began := connection{natCase: c}
			began.client = netip.AddrPortFrom(c.client.Addr(), 20000+port)
			if began.pod = n.send(t, one(n.alive()), began.fromClient(tcpSYN)); began.pod == refused {
				t.Fatalf("connection %d is refused", port)
			}
			confirmSessions(t, n.nodes[began.pod.node].plane)
			open = append(open, began)
		}
		for _, o := range open {
			if got := n.send(t, one(n.alive()), o.fromClient(tcpACK)); got != o.pod {
				t.Fatalf("step %d: port %d reaches pod %v, want %v", port, o.client.Port(), got, o.pod)
			}
		}
		stray := c
		stray.client = netip.AddrPortFrom(c.client.Addr(), 30000+port)
		if got := n.send(t, one(n.alive()), stray.fromClient(tcpACK)); got != refused {
			t.Fatalf("step %d: a packet without a session reaches pod %v", port, got)
		}
	}
	if len(open) == 0 {
		t.Error("no connection is open")
	}
}
