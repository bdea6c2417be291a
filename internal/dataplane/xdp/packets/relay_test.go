// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"net/netip"
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
	svc.Backends[0].Node = node4
	if c.vip.Address.Is6() {
		svc.Backends[0].Node = node6
	}
	return svc
}

// retiring is the service when its own backend gets no new flows: they go to another
// one, on another node.
func (c natCase) retiring(svc *lb.Service) *lb.Service {
	moved, leaving := c.relayed(), svc.Backends[0]
	moved.Backends[0].Address = moved.Backends[0].Address.Next()
	leaving.Weight = 0
	moved.Backends = append(moved.Backends, leaving)
	return moved
}

// atNode is the client's packet on its way to the backend's node, the only other one.
func (c natCase) atNode(flags uint8) frame {
	f := c.fromClient(flags)
	f.destination, f.source = macOf(c.relayed().Backends[0].Node), ownMAC
	f.ip = flowIP(c.vip.Protocol, c.client, netip.AddrPortFrom(c.vip.Address, c.vip.Port), c.relayedHops(flags), flags)
	return f
}

// relayedHops is the hop limit of a packet on that way, with which it came from 60.
func (c natCase) relayedHops(flags uint8) uint8 {
	if c.vip.Protocol == lb.TCP && flags&tcpSYN == 0 {
		return lookupHops(1)
	}
	return 59
}

// lookupHops is the hop limit of a segment that a node relays which knows so many
// others.
func lookupHops(others uint8) uint8 { return 4 + 1 + others }

func relayCases() []natCase {
	cases := natCases()
	for i := range cases {
		cases[i].keep, cases[i].index = true, testIndex
	}
	return cases
}

// Every packet for another node's backend goes there as it came, with one hop less,
// and nothing is remembered of it: the first one of a connection as any other, and
// fragments.
func TestRelay(t *testing.T) {
	p, _ := newTestPlane(t)
	for n, c := range relayCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			update(t, p, c.relayed())
			defer remove(t, p, c.vip)
			for _, flags := range []uint8{tcpACK, tcpSYN, tcpACK | tcpPSH, tcpFIN | tcpACK, tcpRST} {
				wantFrame(t, p, c.fromClient(flags), c.atNode(flags), xdpTX, "forward_relay")
			}
			c.payload = string(bytes.Repeat([]byte("fragments"), 150))
			in, want := inFragments(c.fromClient(tcpACK), uint32(n), 512), inFragments(c.atNode(tcpACK), uint32(n), 512)
			for i := range in {
				wantBytes(t, p, in[i], want[i], xdpTX, "forward_relay")
			}
			if left := sessionsOf(t, p); len(left) > 0 {
				t.Errorf("sessions %+v", left)
			}
		})
	}
}

// In a VLAN packets stay there, with their priority.
func TestRelayInVLAN(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		c.vip.Segment = segment(100)
		svc := c.relayed()
		svc.Backends[0].Segment = lb.Segment{}
		update(t, p, svc)
		wantFrame(t, p, c.fromClient(tcpSYN), c.atNode(tcpSYN), xdpTX, "forward_relay")
		remove(t, p, c.vip)
	}
}

// A packet that may make no further hop, or would go back to the node that it came
// from, ends here: nodes that disagree don't loop it.
func TestRelayEnds(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		svc := c.relayed()
		update(t, p, svc)
		last := c.fromClient(tcpSYN)
		last.ip = flowIP(c.vip.Protocol, c.client, netip.AddrPortFrom(c.vip.Address, c.vip.Port), 1, tcpSYN)
		wantVerdict(t, p, last.build(), xdpDrop, "drop_ttl")
		back := c.fromClient(tcpSYN)
		back.source = macOf(svc.Backends[0].Node)
		wantVerdict(t, p, back.build(), xdpDrop, "drop_loop")
		remove(t, p, c.vip)
	}
}

// A new flow that another node sends here, to which it would go back, begins with an own
// backend: nodes that disagree don't refuse it. A client that is remembered stays there.
func TestRelayReturned(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			svc := c.asking()
			svc.Affinity, svc.AffinityTimeout = lb.AffinityClient, time.Minute
			for i := range svc.Backends {
				svc.Backends[i].Weight = 1
			}
			update(t, p, svc)
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			from := c.toAnotherNode(t, p)
			in := c.fromClient(tcpSYN)
			in.source = from
			wantFrame(t, p, in, c.atServer(tcpSYN, c.client.Port()), xdpTX, "forward_nat")
			next := c
			next.client = netip.AddrPortFrom(c.client.Addr(), c.client.Port()+1)
			wantFrame(t, p, next.fromClient(tcpSYN), next.atServer(tcpSYN, next.client.Port()), xdpTX, "forward_nat")
		})
	}
}

// Other nodes may find a new backend of this node healthy first: the new flows that they relay
// begin, although the ring doesn't have the backend yet.
func TestRelayToNewBackend(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			svc := c.retiring(c.service())
			update(t, p, svc)
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			in := c.fromClient(tcpSYN)
			in.source = macOf(svc.Backends[0].Node)
			wantFrame(t, p, in, c.atServer(tcpSYN, c.client.Port()), xdpTX, "forward_nat")
			other := c
			other.client = netip.AddrPortFrom(c.client.Addr(), c.client.Port()+1)
			wantFrame(t, p, other.fromClient(tcpSYN), other.atNode(tcpSYN), xdpTX, "forward_relay")
		})
	}
}

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

// The second node: the first packet begins a session with the backend, wherever it
// comes from, and a segment of no session is refused.
func TestRelayArrives(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			update(t, p, c.service())
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			if c.vip.Protocol == lb.TCP {
				wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpTX, "answer_reset")
			}
			in := c.fromClient(tcpSYN)
			in.source = macOf(node4)
			wantFrame(t, p, in, c.atServer(tcpSYN, c.client.Port()), xdpTX, "forward_nat")
			confirmSessions(t, p)
			in = c.fromClient(tcpACK)
			in.source = macOf(node6)
			wantFrame(t, p, in, c.atServer(tcpACK, c.client.Port()), xdpTX, "forward_nat")
		})
	}
}

// A session counts more than the ring: also when new flows go to another node.
func TestRelaySessionFirst(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			svc := c.service()
			update(t, p, svc)
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			port := begin(t, p, c)
			confirmSessions(t, p)
			update(t, p, c.retiring(svc))
			wantFrame(t, p, c.fromClient(tcpACK), c.atServer(tcpACK, port), xdpTX, "forward_nat")
			other := c
			other.client = netip.AddrPortFrom(c.client.Addr(), c.client.Port()+1)
			wantFrame(t, p, other.fromClient(tcpSYN), other.atNode(tcpSYN), xdpTX, "forward_relay")
		})
	}
}

// A client's port that is used again goes where the ring says by now: what is left of
// the connection that had it doesn't get the new one's segments.
func TestRelayBeginsAnew(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		if c.vip.Protocol != lb.TCP {
			continue
		}
		t.Run(c.vip.String(), func(t *testing.T) {
			svc := c.service()
			update(t, p, svc)
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			port := begin(t, p, c)
			exchange(t, p, c, port, "sSA", "cA", "cR")
			update(t, p, c.retiring(svc))
			for _, flags := range []uint8{tcpSYN, tcpACK} {
				wantFrame(t, p, c.fromClient(flags), c.atNode(flags), xdpTX, "forward_relay")
			}
		})
	}
}

// So it is when there was no answer to the SYN, and it is repeated: the own
// backend may be dead.
func TestRelayOpensElsewhere(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		if c.vip.Protocol != lb.TCP {
			continue
		}
		t.Run(c.vip.String(), func(t *testing.T) {
			svc := c.service()
			update(t, p, svc)
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			begin(t, p, c)
			update(t, p, c.retiring(svc))
			for _, flags := range []uint8{tcpSYN, tcpACK} {
				wantFrame(t, p, c.fromClient(flags), c.atNode(flags), xdpTX, "forward_relay")
			}
		})
	}
}

// A connection that isn't the own backend's began on the one that the other ring
// names: its segments go there, as its entry has changed not long ago.
func TestRelayAsksTheOther(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		if c.vip.Protocol != lb.TCP {
			continue
		}
		t.Run(c.vip.String(), func(t *testing.T) {
			update(t, p, c.service())
			defer remove(t, p, c.vip)
			moved := c.relayed()
			moved.Backends[0].Address = moved.Backends[0].Address.Next()
			update(t, p, moved)
			wantFrame(t, p, c.fromClient(tcpACK), c.atNode(tcpACK), xdpTX, "forward_relay")
		})
	}
}

// Flows stay where they are when backends of other nodes change, as in the modes in
// which servers answer clients directly.
func TestRelayKeepsFlows(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		if c.vip.Protocol != lb.TCP {
			continue
		}
		t.Run(c.vip.String(), func(t *testing.T) {
			before := c.relayed()
			update(t, p, before)
			defer remove(t, p, c.vip)
			after := c.relayed()
			after.Backends[0].Address, after.Backends[0].Node = after.Backends[0].Address.Next(), after.Backends[0].Node.Next()
			update(t, p, after)
			going := c.atNode(tcpACK)
			going.ip = flowIP(c.vip.Protocol, c.client, netip.AddrPortFrom(c.vip.Address, c.vip.Port), lookupHops(2), tcpACK)
			wantFrame(t, p, c.fromClient(tcpACK), going, xdpTX, "forward_relay")
			other := c
			other.client = netip.AddrPortFrom(c.client.Addr(), c.client.Port()+1)
			opening := other.atNode(tcpSYN)
			opening.destination = macOf(after.Backends[0].Node)
			wantFrame(t, p, other.fromClient(tcpSYN), opening, xdpTX, "forward_relay")
		})
	}
}

// A flow leaves a removed backend whose node doesn't have the service any more: another node may
// have its session.
func TestRelayToFormerNode(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range tcpRelayCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			before, after := c.relayed(), c.relayed()
			former := before.Backends[0].Node
			present := former.Next()
			after.Backends[0].Address, after.Backends[0].Node = after.Backends[0].Address.Next(), present
			before.Balancers = []netip.Addr{former}
			update(t, p, before)
			defer remove(t, p, c.vip)
			for _, step := range []struct {
				balancers []netip.Addr
				to        netip.Addr
				nodes     uint8
			}{
				{[]netip.Addr{former, present}, former, 2},
				{[]netip.Addr{present}, present, 1},
			} {
				next := *after
				next.Balancers = step.balancers
				update(t, p, &next)
				want := c.lookedUp(lookupHops(step.nodes))
				want.destination = macOf(step.to)
				wantFrame(t, p, c.fromClient(tcpACK), want, xdpTX, "forward_relay")
			}
		})
	}
}

// An ICMP error about what a backend sent follows the flow that it quotes.
func TestRelayErrors(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			svc := c.relayed()
			update(t, p, svc)
			defer remove(t, p, c.vip)
			for _, m := range errorsOf(c.vip.Address) {
				quote := quoteOf(c.atClient(tcpACK), 8)
				in := errorFrame(router(c.vip.Address), c.vip.Address, m, quote, 60)
				want := errorFrame(router(c.vip.Address), c.vip.Address, m, quote, c.relayedHops(tcpACK))
				in.destination, in.source = balancerMAC, clientMAC
				want.destination, want.source = macOf(svc.Backends[0].Node), ownMAC
				wantFrame(t, p, in, want, xdpTX, "forward_relay")
			}
		})
	}
}

// A node that can't be reached takes its backends out of use.
func TestRelayLost(t *testing.T) {
	p, hops := newTestPlane(t)
	for _, c := range relayCases() {
		svc := c.relayed()
		hops.lost[svc.Backends[0].Node] = true
		programmed := update(t, p, svc)
		if b := programmed.Backends[0]; b.InUse || b.Reason != errLost.Error() {
			t.Errorf("%s: %+v", c.vip, b)
		}
		wantVerdict(t, p, c.fromClient(tcpSYN).build(), xdpDrop, "drop_no_backend")
		remove(t, p, c.vip)
	}
}
