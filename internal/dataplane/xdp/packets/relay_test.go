// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
)

var (
	node4 = netip.MustParseAddr("10.0.2.12")
	node6 = netip.MustParseAddr("fd00:2::12")
)

// relayed makes the case's backend another node's.
func (c natCase) relayed() *lb.Service {
	svc := c.service()
	svc.Forward = lb.DSR
	svc.Backends[0].Node = c.node()
	return svc
}

// node is the node of that backend, otherNode the next one.
func (c natCase) node() netip.Addr {
	if c.vip.Address.Is4() {
		return node4
	}
	return node6
}

func (c natCase) otherNode() netip.Addr { return c.node().Next() }

// moved makes the case's only backend another one on another node.
func (c natCase) moved() *lb.Service {
	svc := c.relayed()
	svc.Backends[0].Address = svc.Backends[0].Address.Next()
	return svc
}

// retire has the service's own backend get no new flows: they go to another one, on another
// node.
func retire(s *scene) {
	leaving := s.svc.Backends[0]
	leaving.Weight = 0
	s.svc = s.moved()
	s.svc.Backends = append(s.svc.Backends, leaving)
	again(s)
}

// toNode is the client's packet on its way to another node.
func (c natCase) toNode(flags, hops uint8, node netip.Addr) frame {
	c.hops, c.via = hops, ownMAC
	f := c.fromClient(flags)
	f.destination = macOf(node)
	return f
}

// atNode is the client's packet on its way to the backend's node, the only other one.
func (c natCase) atNode(flags uint8) frame { return c.toNode(flags, c.relayedHops(flags), c.node()) }

// relayedHops is the hop limit of a packet on that way.
func (c natCase) relayedHops(flags uint8) uint8 {
	if c.vip.Protocol == lb.TCP && flags&tcpSYN == 0 {
		return lookupHops(1)
	}
	return c.hops - 1
}

// lookupHops is the hop limit of a segment that a node relays which knows so many
// others.
func lookupHops(others uint8) uint8 { return 4 + 1 + others }

func relayCases() []natCase {
	cases := natCases()
	for i := range cases {
		cases[i].keep = true
	}
	return cases
}

// tcpRelayCases returns the TCP cases of relayCases.
func tcpRelayCases() []natCase { return tcp(relayCases()) }

// toAnotherNode changes the client's address until new flows go to another node, and
// returns to which.
func (c *natCase) toAnotherNode(t *testing.T, p *xdp.Unattached) lb.MAC {
	t.Helper()
	for range 100 {
		_, out := run(t, p, c.fromClient(tcpSYN).build())
		if to := lb.MAC(out[:6]); to != macOf(c.backend.Addr()) {
			return to
		}
		c.client = netip.AddrPortFrom(c.client.Addr().Next(), c.client.Port())
	}
	t.Fatal("no client's flows go to another node")
	return lb.MAC{}
}

// Every packet for another node's backend goes there as it came, with one hop less,
// and nothing is remembered of it: the first one of a connection as any other, and
// fragments.
func TestRelay(t *testing.T) {
	id := uint32(0)
	runScenarios(t,
		scenario{"packets", relayCases(), steps{
			serve(natCase.relayed), exit("forward_relay", "cA", "cS", "cAP", "cFA", "cR"), entries(0),
		}},
		scenario{"fragments", relayCases(), steps{serve(natCase.relayed), func(s *scene) {
			s.payload = strings.Repeat("fragments", 150)
			id++
			wantFragments(s.t, s.p, s.fromClient(tcpACK), s.atNode(tcpACK), id, 512, "forward_relay")
		}, entries(0)}},
		// An ICMP error about a backend's packet follows the flow that it quotes.
		scenario{"errors", relayCases(), steps{serve(natCase.relayed), func(s *scene) {
			vip := s.vip.Address
			for _, m := range errorsOf(vip) {
				quote := quoteOf(s.atClient(tcpACK), 8)
				in := errorFrame(router(vip), vip, m, quote, 60)
				want := errorFrame(router(vip), vip, m, quote, s.relayedHops(tcpACK))
				in.destination, in.source = balancerMAC, clientMAC
				want.destination, want.source = macOf(s.node()), ownMAC
				wantFrame(s.t, s.p, in, want, xdpTX, "forward_relay")
			}
		}}},
		// In a VLAN packets stay there, with their priority.
		scenario{"in a VLAN", relayCases(), steps{
			func(s *scene) { s.vip.Segment = segment(100) },
			serve(natCase.relayed, func(_ *scene, svc *lb.Service) { svc.Backends[0].Segment = lb.Segment{} }),
			exit("forward_relay", "cS"),
		}},
		// Packets with the last hop or from the node that they are for end here: nodes that
		// disagree don't loop them.
		scenario{"loops", relayCases(), steps{
			serve(natCase.relayed), fromRouter(1), exit("drop_ttl", "cS"),
			fromNode(natCase.node, 60), exit("drop_loop", "cS"),
		}},
		scenario{"lost node", relayCases(), steps{
			func(s *scene) {
				s.hops.lost[s.node()] = true
				programmed := update(s.t, s.p, s.relayed())
				if b := programmed.Backends[0]; b.InUse || b.Reason != errLost.Error() {
					s.t.Errorf("backend %+v", b)
				}
			},
			exit("drop_no_backend", "cS"),
		}},
	)
}

// New flows and segments that other nodes relay to this one.
func TestRelayedPackets(t *testing.T) {
	runScenarios(t,
		// The first packet begins a session with the backend, wherever it comes from, and a
		// segment of no session is refused.
		scenario{"from any node", relayCases(), steps{
			serve(natCase.service), ifTCP(exit("answer_reset", "cA")),
			fromNode(natCase.node, 60), send("cS"), confirm,
			fromNode(natCase.otherNode, 60), send("cA"),
		}},
		// A new flow that would go back to its sender begins with an own backend: nodes that
		// disagree don't refuse it. A client that is remembered stays there.
		scenario{"returned", relayCases(), steps{
			serve(natCase.asking, func(_ *scene, svc *lb.Service) {
				svc.Affinity, svc.AffinityTimeout = lb.AffinityClient, time.Minute
			}),
			func(s *scene) { s.via = s.toAnotherNode(s.t, s.p) },
			send("cS"), fromRouter(60), send("oS"),
		}},
		// Other nodes may find a new backend of this node healthy before its ring has it.
		scenario{"for a new backend", relayCases(), steps{
			serve(natCase.service), retire,
			fromNode(natCase.node, 60), send("cS"), fromRouter(60), exit("forward_relay", "oS"),
		}},
	)
}

// Flows while backends and nodes change.
func TestRelayChanges(t *testing.T) {
	balancers := func(of ...func(natCase) netip.Addr) func(*scene, *lb.Service) {
		return func(s *scene, svc *lb.Service) {
			for _, node := range of {
				svc.Balancers = append(svc.Balancers, node(s.natCase))
			}
		}
	}
	movedToOther := func(c natCase) *lb.Service {
		svc := c.moved()
		svc.Backends[0].Node = c.otherNode()
		return svc
	}
	runScenarios(t,
		// A session counts more than the ring: also when new flows go to another node.
		scenario{"session", relayCases(), steps{
			serve(natCase.service), send("cS"), confirm, retire, send("cA"), exit("forward_relay", "oS"),
		}},
		// The record of a closed connection doesn't get the segments of a new one.
		scenario{"closed connection", tcpRelayCases(), steps{
			serve(natCase.service), send("cS", "sSA", "cA", "cR"), retire, exit("forward_relay", "cS", "cA"),
		}},
		// The own backend may be dead if it hasn't answered the SYN.
		scenario{"unanswered SYN", tcpRelayCases(), steps{
			serve(natCase.service), send("cS"), retire, exit("forward_relay", "cS", "cA"),
		}},
		// A connection without a session here began on the backend of the other ring.
		scenario{"connection of the other ring", tcpRelayCases(), steps{
			serve(natCase.service), serve(natCase.moved), exit("forward_relay", "cA"),
		}},
		// Flows stay when backends of other nodes change, as in the modes in which servers
		// answer clients directly.
		scenario{"backends of other nodes", tcpRelayCases(), steps{
			serve(natCase.relayed), serve(movedToOther),
			toNode("forward_relay", natCase.node, lookupHops(2), "cA"),
			toNode("forward_relay", natCase.otherNode, 59, "oS"),
		}},
		// A flow leaves a removed backend whose node doesn't have the service any more: another
		// node may have its session.
		scenario{"former node", tcpRelayCases(), steps{
			serve(natCase.relayed, balancers(natCase.node)),
			serve(movedToOther, balancers(natCase.node, natCase.otherNode)),
			toNode("forward_relay", natCase.node, lookupHops(2), "cA"),
			serve(movedToOther, balancers(natCase.otherNode)),
			toNode("forward_relay", natCase.otherNode, lookupHops(1), "cA"),
		}},
	)
}
