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
func (c natCase) elsewhere(hops *staticHops, outside bool) *lb.Service {
	svc := c.relayed()
	if outside {
		svc.Backends[0].Node, svc.Backends[0].Outside = netip.Addr{}, true
	} else {
		hops.beyond[svc.Backends[0].Node] = true
	}
	return svc
}

// forElsewhere runs a test for each case, and for either reason not to relay.
func forElsewhere(t *testing.T, test func(t *testing.T, p *xdp.Unattached, hops *staticHops, c natCase, svc *lb.Service)) {
	p, hops := newTestPlane(t)
	for _, c := range natCases() {
		for name, outside := range map[string]bool{"behind a gateway": false, "on no node": true} {
			t.Run(c.vip.String()+" "+name, func(t *testing.T) {
				clear(hops.beyond)
				svc := c.elsewhere(hops, outside)
				update(t, p, svc)
				defer remove(t, p, c.vip)
				defer endAllSessions(t, p)
				test(t, p, hops, c, svc)
			})
		}
	}
}

// A backend whose node packets can't be relayed to is translated for here, as with
// NAT: the server answers this node, and answers go back by the way that the
// client's packets came.
func TestTranslatedInstead(t *testing.T) {
	forElsewhere(t, func(t *testing.T, p *xdp.Unattached, _ *staticHops, c natCase, _ *lb.Service) {
		if c.vip.Protocol == lb.TCP {
			wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpTX, "answer_reset")
		}
		port := begin(t, p, c)
		if port < program.DefaultFirstPort || port > program.DefaultLastPort {
			t.Errorf("port %d is none of the node's", port)
		}
		exchange(t, p, c, port, "sSA")
		for range 2 {
			wantFrame(t, p, c.fromServer(tcpACK, port), c.atClient(tcpACK), xdpTX, "forward_nat_reply")
			wantFrame(t, p, c.fromClient(tcpACK), c.atServer(tcpACK, port), xdpTX, "forward_nat")
		}
		if got := stats(t, p).Services[c.vip]; got.Packets != 3 || got.NewFlows != 1 {
			t.Errorf("traffic %+v, want 3 packets and a new flow", got.Traffic)
		}
	})
}

// Errors about its packets are translated in both directions; only this node can,
// so that one about an unknown session ends here.
func TestTranslatedInsteadErrors(t *testing.T) {
	forElsewhere(t, func(t *testing.T, p *xdp.Unattached, _ *staticHops, c natCase, _ *lb.Service) {
		m := errorsOf(c.vip.Address)[0]
		unknown := errorFrame(router(c.vip.Address), c.vip.Address, m, quoteOf(c.atClient(tcpACK), 8), 60)
		unknown.destination, unknown.source = balancerMAC, clientMAC
		wantVerdict(t, p, unknown.build(), xdpDrop, "drop_no_session")
		port := begin(t, p, c)
		testErrors(t, p, c, port, m, 8)
	})
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
	p, hops := newTestPlane(t)
	for _, c := range natCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			clear(hops.beyond)
			svc := c.mixed(hops)
			update(t, p, svc)
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			seen := map[string]int{}
			for i := range uint16(100) {
				one := c
				one.client = netip.AddrPortFrom(c.client.Addr(), c.client.Port()+i)
				seen[testMixed(t, p, one, svc)]++
			}
			if len(seen) != 3 {
				t.Errorf("kinds of backends %v", seen)
			}
		})
	}
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

// A node's route may change. What is relayed to by then keeps the sessions by which
// its answers come here, and new flows are relayed; what isn't any more has no
// sessions of the flows that were relayed, so that their segments are refused.
func TestRelayComesAndGoes(t *testing.T) {
	p, hops := newTestPlane(t)
	for _, c := range natCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			clear(hops.beyond)
			svc := c.elsewhere(hops, false)
			update(t, p, svc)
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			port := begin(t, p, c)
			confirmSessions(t, p)
			clear(hops.beyond)
			update(t, p, svc)
			toNode := c.atServer(tcpACK, port)
			toNode.destination = macOf(svc.Backends[0].Node)
			wantFrame(t, p, c.fromClient(tcpACK), toNode, xdpTX, "forward_nat")
			wantFrame(t, p, c.fromServer(tcpACK, port), c.atClient(tcpACK), xdpTX, "forward_nat_reply")
			other := c
			other.client = netip.AddrPortFrom(c.client.Addr(), c.client.Port()+1)
			for _, flags := range []uint8{tcpSYN, tcpACK} {
				wantFrame(t, p, other.fromClient(flags), other.atNode(flags), xdpTX, "forward_relay")
			}
			hops.beyond[svc.Backends[0].Node] = true
			update(t, p, svc)
			wantFrame(t, p, c.fromClient(tcpACK), c.atServer(tcpACK, port), xdpTX, "forward_nat")
			if c.vip.Protocol == lb.TCP {
				wantVerdict(t, p, other.fromClient(tcpACK).build(), xdpTX, "answer_reset")
			}
		})
	}
}
