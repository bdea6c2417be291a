// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
)

// elsewhere makes the case's backend one of a node that packets can't be relayed to:
// behind a gateway, or of no node that takes part. Clients are not seen there.
func elsewhere(outside bool) step {
	return func(s *scene) {
		s.svc = s.relayed()
		if outside {
			s.svc.Backends[0].Node, s.svc.Backends[0].Outside = netip.Addr{}, true
		} else {
			s.hops.beyond[s.node()] = true
		}
		again(s)
	}
}

// A backend whose node packets can't be relayed to is translated for here, as with
// NAT: the server answers this node, and answers go back by the way that the
// client's packets came.
func TestDSRTranslation(t *testing.T) {
	for name, outside := range map[string]bool{"behind a gateway": false, "on no node": true} {
		runScenarios(t,
			scenario{name, natCases(), steps{
				elsewhere(outside), ifTCP(exit("answer_reset", "cA")), newSession,
				func(s *scene) {
					if s.port < program.DefaultFirstPort || s.port > program.DefaultLastPort {
						s.t.Errorf("port %d is none of the node's", s.port)
					}
				},
				send("sSA", "sA", "cA", "sA", "cA"), traffic(3, 1),
			}},
			// Errors are translated in both directions. As only this node can do so, one about an
			// unknown session ends here.
			scenario{name + ", errors", natCases(), steps{elsewhere(outside), func(s *scene) {
				m := errorsOf(s.vip.Address)[0]
				unknown := errorFrame(router(s.vip.Address), s.vip.Address, m, quoteOf(s.atClient(tcpACK), 8), 60)
				unknown.destination, unknown.source = balancerMAC, clientMAC
				wantVerdict(s.t, s.p, unknown.build(), xdpDrop, "drop_no_session")
				newSession(s)
				testErrors(s.t, s.p, s.natCase, s.port, m, 8)
			}}},
		)
	}
}

// A node's route may change. Sessions stay when packets can be relayed there, and new flows
// are relayed. When they can't any more, segments of the relayed flows are refused.
func TestDSRRouteChange(t *testing.T) {
	runScenarios(t, scenario{"", natCases(), steps{
		elsewhere(false), newSession, confirm,
		func(s *scene) {
			clear(s.hops.beyond)
			again(s)
			toNode := s.atServer(tcpACK, s.port)
			toNode.destination = macOf(s.node())
			wantFrame(s.t, s.p, s.fromClient(tcpACK), toNode, xdpTX, "forward_nat")
		},
		send("sA"), exit("forward_relay", "oS", "oA"),
		elsewhere(false), send("cA"), ifTCP(exit("answer_reset", "oA")),
	}})
}

// mixed has one backend of each kind: this node's own, another node's on the link,
// and one behind a gateway. Their next hops differ.
func (c natCase) mixed(hops *staticHops) *lb.Service {
	svc := c.relayed()
	own, beyond := svc.Backends[0], svc.Backends[0]
	own.Address, own.Node = own.Address.Next(), netip.Addr{}
	beyond.Address, beyond.Node = own.Address.Next(), beyond.Node.Next()
	hops.beyond[beyond.Node] = true
	svc.Backends = append(svc.Backends, own, beyond)
	return svc
}

// A service's backends may be of all three kinds: the path of a packet is up to
// the backend that the ring says.
func TestMixedService(t *testing.T) {
	runScenarios(t, scenario{"", natCases(), steps{func(s *scene) {
		svc := s.mixed(s.hops)
		update(s.t, s.p, svc)
		seen := map[string]int{}
		for i := range uint16(100) {
			one := s.natCase
			one.client = netip.AddrPortFrom(s.client.Addr(), s.client.Port()+i)
			seen[testMixed(s.t, s.p, one, svc)]++
		}
		if len(seen) != 3 {
			s.t.Errorf("kinds of backends %v", seen)
		}
	}}})
}

// testMixed sends a flow to a service, finds out whose it is, and wants it to be
// brought there, and a trace to say so. It returns which kind of backend that is.
func testMixed(t *testing.T, p *xdp.Unattached, c natCase, svc *lb.Service) string {
	t.Helper()
	traced := trace(t, p, c.fromClient(tcpSYN).build()).Backend
	shows := func(from, to netip.Addr) {
		t.Helper()
		if traced == nil || traced.Local != from || traced.Remote != to {
			t.Errorf("trace of the backend %+v, want from %s to %s", traced, from, to)
		}
	}
	_, out := run(t, p, c.fromClient(tcpSYN).build())
	confirmSessions(t, p)
	switch to := lb.MAC(out[:6]); to {
	case macOf(svc.Backends[0].Node):
		c.keep = true
		shows(netip.Addr{}, netip.Addr{})
		wantFrame(t, p, c.fromClient(tcpACK), c.atNode(tcpACK), xdpTX, "forward_relay")
		return "relayed"
	case macOf(svc.Backends[1].Address):
		c.keep, c.backend = true, netip.AddrPortFrom(svc.Backends[1].Address, c.backend.Port())
		shows(netip.Addr{}, c.backend.Addr())
		wantFrame(t, p, c.fromClient(tcpACK), c.atServer(tcpACK, c.client.Port()), xdpTX, "forward_nat")
		wantFrame(t, p, c.fromServer(tcpACK, c.client.Port()), c.atClient(tcpACK), xdpTX, "forward_nat_reply")
		return "own"
	case macOf(svc.Backends[2].Address):
		c.backend = netip.AddrPortFrom(svc.Backends[2].Address, c.backend.Port())
		shows(c.snat(), c.backend.Addr())
		port := sourcePort(t, out)
		wantFrame(t, p, c.fromClient(tcpACK), c.atServer(tcpACK, port), xdpTX, "forward_nat")
		wantFrame(t, p, c.fromServer(tcpACK, port), c.atClient(tcpACK), xdpTX, "forward_nat_reply")
		return "translated"
	default:
		t.Errorf("sent to %s", to)
		return ""
	}
}
