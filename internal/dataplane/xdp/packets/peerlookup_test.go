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
	for _, node := range []netip.Addr{c.otherNode(), c.node()} {
		b := svc.Backends[len(svc.Backends)-1]
		b.Address, b.Node = b.Address.Next(), node
		svc.Backends = append(svc.Backends, b)
	}
	return svc
}

// ownInRing is asking with only the own backend in the ring.
func (c natCase) ownInRing() *lb.Service {
	svc := c.asking()
	svc.Backends[1].Weight, svc.Backends[2].Weight = 0, 0
	return svc
}

// withHops is the client's packet with another hop limit, from a node.
func (c natCase) withHops(hops uint8, from lb.MAC) frame {
	c.hops, c.via = hops, from
	return c.fromClient(tcpACK)
}

// lookup has the client's segment go to a node, with that hop limit.
func lookup(node func(natCase) netip.Addr, hops uint8) step {
	return toNode("forward_lookup", node, hops, "cA")
}

// A packet of a connection without a session here goes to the next node, with as many
// hops as there are nodes to query, and the last one refuses it.
func TestLookup(t *testing.T) {
	all := lookupHops(2)
	node, last := natCase.node, natCase.otherNode
	setNodes := func(what func(*staticHops) map[netip.Addr]bool) step {
		return func(s *scene) { what(s.hops)[s.node()], what(s.hops)[s.otherNode()] = true, true }
	}
	lost := setNodes(func(h *staticHops) map[netip.Addr]bool { return h.lost })
	pending := setNodes(func(h *staticHops) map[netip.Addr]bool { return h.pending })
	runScenarios(t,
		scenario{"each node once", tcpRelayCases(), steps{
			serve(natCase.ownInRing), lookup(node, all),
			fromNode(last, all), lookup(node, all-1),
			fromNode(last, all-1), lookup(node, all-2),
			fromNode(last, all-2), exit("answer_reset", "cA"),
			fromRouter(60), lost, again, exit("answer_reset", "cA"),
		}},
		// A node that takes all others for dead, as one that has just come back may do, queries
		// them all the same. No packet is refused while their next hops are pending.
		scenario{"dead nodes", tcpRelayCases(), steps{
			serve(natCase.asking, func(_ *scene, svc *lb.Service) { svc.Backends[1].Down, svc.Backends[2].Down = true, true }),
			lookup(node, all), pending, again, exit("drop_no_session", "cA"),
		}},
		// A node that knows of fewer nodes may be next, and have sent the segment.
		scenario{"not back to the sender", tcpRelayCases(), steps{
			serve(natCase.asking), fromNode(node, all), lookup(last, all-1), fromNode(last, all), lookup(node, all-1),
			fromNode(node, all-1), lookup(last, all-2), fromNode(last, all-1), lookup(node, all-2),
		}},
		// So is a segment that the ring would send back. One that is being looked up already
		// isn't sent where the ring says.
		scenario{"before the ring", tcpRelayCases(), steps{
			serve(natCase.asking, func(_ *scene, svc *lb.Service) { svc.Backends[0].Weight, svc.Backends[2].Weight = 0, 0 }),
			fromNode(last, 60), lookup(node, all), fromRouter(60), toNode("forward_relay", last, all, "cA"),
			fromRouter(all + 1), lookup(node, all),
		}},
		scenario{"too big", tcpRelayCases(), steps{
			func(s *scene) { s.hops.mtu, s.payload = 1400, strings.Repeat("x", 1420) },
			serve(natCase.ownInRing), exit("answer_too_big", "cA"),
		}},
		scenario{"session of this node", tcpRelayCases(), steps{
			serve(natCase.service), send("cS"), confirm, serve(natCase.asking), fromNode(node, 5), send("cA"),
		}},
		// A packet that begins a flow is never looked up, whatever its hop limit.
		scenario{"new flow", relayCases(), steps{serve(natCase.ownInRing), fromRouter(6), send("cS")}},
		scenario{"limit", tcpRelayCases(), steps{
			serve(natCase.ownInRing),
			func(s *scene) { setLimit(s.t, s.p, table.BalancerRateRATE_LOOKUP, ^uint64(0)) },
			exit("drop_answer_limit", "cA"),
			func(s *scene) { setLimit(s.t, s.p, table.BalancerRateRATE_LOOKUP, 0) },
			fromRouter(6), lookup(node, 5),
		}},
		// Packets may arrive after a round is written and before its view is: no client
		// refuses them. The next backend is an own one, and one to come.
		scenario{"round of the other view", tcpRelayCases(), steps{
			serve(natCase.ownInRing), nextPeer(0), exit("drop_no_session", "cA"), nextPeer(3), exit("drop_no_session", "cA"),
		}},
	)
}

// nextPeer writes the number of the first backend in the round of look-ups.
func nextPeer(next uint16) step {
	return func(s *scene) {
		number, field := serviceNumber(s.t, s.p, s.vip), unsafe.Offsetof(table.BalancerService{}.PeerLookup)
		must(s.t, table.WriteService(s.p.Tables, number, field, table.BalancerPeerLookup{Next: next, Peers: 2}))
	}
}

// A node whose backends are down is left out, also if backends that left the service before
// are on it, as their health isn't checked. It is included again when one of its backends
// is up, and it was never doubted because of one that hasn't been up yet.
func TestLookupSkipsDeadNodes(t *testing.T) {
	runScenarios(t, scenario{"", tcpRelayCases(), steps{func(s *scene) {
		svc := s.ownInRing()
		last, next := &svc.Backends[1], &svc.Backends[2]
		left := *next
		left.Address = left.Address.Next()
		update(s.t, s.p, withBackends(svc, svc.Backends[0], *last, *next, left))
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
			update(s.t, s.p, withBackends(svc, step.backends...))
			lookup(func(natCase) netip.Addr { return step.lookedUp }, lookupHops(step.nodes))(s)
			if s.t.Failed() {
				s.t.Fatal(step.name)
			}
		}
	}}})
}

func withBackends(svc *lb.Service, backends ...lb.Backend) *lb.Service {
	other := *svc
	other.Backends = backends
	return &other
}

func down(b lb.Backend) lb.Backend { b.Down = true; return b }

func up(b lb.Backend) lb.Backend { b.Down = false; return b }

// A flood of segments to one service leaves the look-ups of others.
func TestLookupLimitOfAService(t *testing.T) {
	p, _ := newTestPlane(t)
	cases := tcpRelayCases()
	for i := range cases {
		update(t, p, cases[i].ownInRing())
	}
	flooded, other := cases[0], cases[1]
	used := func(arrival uint64) {
		t.Helper()
		must(t, p.Tables.Maps.Lookups.Put(serviceNumber(t, p, flooded.vip), arrival))
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
	node := c.node()
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

// start makes a node without earlier state.
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

func (n *netNodes) updateAll(t *testing.T) {
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
func TestPeerLookupConnectionsSurvive(t *testing.T) {
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
			n.updateAll(t)
		case action == 1 && !node.dead:
			n.replace(i)
			n.updateAll(t)
		case action == 2 && node.dead:
			n.replace(i)
			n.start(t, i)
			n.updateAll(t)
		case action == 2 && len(n.alive()) > 2 && len(n.takers()) > 1:
			node.dead = true
			open = slices.DeleteFunc(open, func(o connection) bool { return o.pod.node == i })
			n.updateAll(t)
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
