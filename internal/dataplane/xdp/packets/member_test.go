// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// memberCase is a service that two nodes share: this one, whose addresses are local4
// and local6, and another.
type memberCase struct {
	forward lb.Forward
	vip     netip.Addr
	own     netip.Addr
	other   netip.Addr
}

func (c memberCase) String() string {
	return fmt.Sprintf("%s/%s over %s", c.forward, family(c.vip), family(c.own))
}

func memberCases() []memberCase { return membersBy(lb.L2DSR, lb.IPIP, lb.GUE) }

func membersBy(forwards ...lb.Forward) (all []memberCase) {
	for _, forward := range forwards {
		for _, vip := range []netip.Addr{vip4, vip6} {
			all = append(all, memberCase{forward, vip, local4, node4}, memberCase{forward, vip, local6, node6})
		}
	}
	return all
}

// at is the service as a node has it that knows the other one as a balancer.
func (c memberCase) at(self, other netip.Addr) *lb.Service {
	return &lb.Service{
		Name: "web", VIP: lb.VIP{Address: c.vip, Port: 80, Protocol: lb.TCP}, Forward: c.forward, MinHealthy: 1,
		Membership: lb.Membership{Self: self, Balancers: []netip.Addr{other}},
		Backends:   []lb.Backend{{Address: c.own, Port: 80, Weight: 1}, {Address: c.other, Port: 80, Weight: 1}},
	}
}

func (c memberCase) client(i int) netip.AddrPort {
	if c.vip.Is4() {
		return netip.AddrPortFrom(client4.Addr(), uint16(20000+i))
	}
	return netip.AddrPortFrom(client6.Addr(), uint16(20000+i))
}

// onWire is the frame as the other node gets it: the test's own hops all come from
// one MAC address.
func (c memberCase) onWire(out []byte) []byte {
	out = bytes.Clone(out)
	mac := macOf(c.own)
	copy(out[6:12], mac[:])
	return out
}

// wantDelivered runs a frame that the kernel has to get, as want.
func wantDelivered(t *testing.T, p *xdp.Unattached, in, want []byte, exit string) {
	t.Helper()
	wantBytes(t, p, in, want, xdpPass, exit)
}

// sent runs a client's frame. It returns the frame that comes out and whether it is
// for the other node.
func (c memberCase) sent(t *testing.T, p *xdp.Unattached, in []byte) (out []byte, away bool) {
	t.Helper()
	var verdict uint32
	moved := exits(t, p, func() { verdict, out = run(t, p, in) })
	switch {
	case verdict == xdpTX && maps.Equal(moved, map[string]uint64{"forward_" + c.forward.String(): 1}):
		return c.onWire(out), true
	case verdict == xdpPass && bytes.Equal(in, out) && maps.Equal(moved, map[string]uint64{"forward_local": 1}):
		return nil, false
	}
	t.Fatalf("verdict %d, counters %v, frame % x", verdict, moved, out)
	return nil, false
}

// Of two nodes that share a service each keeps its own part of the flows, and gets
// the other's part from it: the kernel has the client's packet in both cases.
func TestMembers(t *testing.T) {
	here, _ := newTestPlane(t)
	there, _ := newTestPlane(t)
	for _, c := range memberCases() {
		t.Run(c.String(), func(t *testing.T) {
			const flows = 64
			programmed := update(t, here, c.at(c.own, c.other))
			update(t, there, c.at(c.other, c.own))
			if got := programmed.Backends[0].NextHop; got != "this node" || !programmed.Backends[0].InUse {
				t.Errorf("own backend %+v", programmed.Backends[0])
			}
			kept := uint64(0)
			for i := range flows {
				in := flowPacket(c.at(c.own, c.other).VIP, c.client(i))
				out, away := c.sent(t, here, in)
				if _, further := c.sent(t, there, in); further == away {
					t.Fatalf("flow %d: both nodes send it away (%t), or none", i, away)
				}
				if !away {
					kept++
					continue
				}
				wantDelivered(t, there, out, append(bytes.Clone(out[:12]), in[12:]...), "pass_from_peer")
			}
			own, _ := stats(t, here).Services[c.at(c.own, c.other).VIP].Backend(netip.AddrPortFrom(c.own, 80))
			if kept == 0 || kept == flows || own.Packets != kept {
				t.Errorf("%d of %d flows kept, %d packets counted", kept, flows, own.Packets)
			}
			remove(t, here, c.at(c.own, c.other).VIP)
			remove(t, there, c.at(c.own, c.other).VIP)
		})
	}
}

// A frame that would go back by L2 DSR to the node that sent it is accepted, though this
// node doesn't know yet that its MAC address is a balancer's. It has to pass the list of sources.
func TestMemberNotYetKnown(t *testing.T) {
	here, _ := newTestPlane(t)
	for _, c := range membersBy(lb.L2DSR) {
		svc := c.at(c.own, c.other.Next())
		svc.Backends[0].Weight = 0
		in := flowPacket(svc.VIP, c.client(0))
		from := macOf(c.other)
		copy(in[6:12], from[:])
		update(t, here, svc)
		wantDelivered(t, here, in, in, "pass_from_peer")
		remove(t, here, svc.VIP)
		svc = c.at(c.own, c.other)
		svc.Sources.Deny = []netip.Prefix{netip.PrefixFrom(c.client(0).Addr(), c.vip.BitLen())}
		update(t, here, svc)
		wantBytes(t, here, in, in, xdpDrop, "drop_source_denied")
		remove(t, here, svc.VIP)
	}
}

// A node accepts packets of another balancer even if it would choose another backend:
// so packets never loop, whatever rings the nodes have.
func TestMembersDisagree(t *testing.T) {
	here, _ := newTestPlane(t)
	there, _ := newTestPlane(t)
	for _, c := range memberCases() {
		t.Run(c.String(), func(t *testing.T) {
			svc, against := c.at(c.own, c.other), c.at(c.other, c.own)
			svc.Backends[0].Weight, against.Backends[1].Weight = 0, 0
			update(t, here, svc)
			update(t, there, against)
			defer remove(t, here, svc.VIP)
			defer remove(t, there, svc.VIP)
			in := flowPacket(svc.VIP, c.client(0))
			out, away := c.sent(t, here, in)
			if _, back := c.sent(t, there, in); !away || !back {
				t.Fatal("each node should choose the other one")
			}
			wantDelivered(t, there, out, append(bytes.Clone(out[:12]), in[12:]...), "pass_from_peer")
		})
	}
}

// tunnelled is a client's packet in a tunnel, with one thing that may be wrong.
func (c memberCase) tunnelled(from, to, vip netip.Addr, tags ...uint16) []byte {
	client := client6
	if vip.Is4() {
		client = client4
	}
	return c.carrying(from, to, transport(lb.VIP{Address: vip, Port: 80, Protocol: lb.TCP}, client), tags...)
}

// carrying is a packet in a tunnel.
func (c memberCase) carrying(from, to netip.Addr, inner []gopacket.SerializableLayer, tags ...uint16) []byte {
	protocol := layers.IPProtocolIPv6
	if ethertype(inner) == layers.EthernetTypeIPv4 {
		protocol = layers.IPProtocolIPv4
	}
	f := frame{destination: balancerMAC, source: clientMAC, tags: tags, payload: "longer than the padding of a short frame"}
	if c.forward == lb.GUE {
		f.ip = append(overUDP(ipLayer(from, to, layers.IPProtocolUDP), 50000, 6080), gopacket.Payload{0, byte(protocol), 0, 0})
	} else {
		f.ip = []gopacket.SerializableLayer{ipLayer(from, to, protocol)}
	}
	f.ip = append(f.ip, inner...)
	return f.build()
}

// Tunnels are ended only if they come from another balancer, to this node, for a
// service that is shared in this way: all others stay as they are.
func TestTunnelsOfUnknownSources(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range membersBy(lb.IPIP, lb.GUE) {
		t.Run(c.String(), func(t *testing.T) {
			svc := c.at(c.own, c.other)
			update(t, p, svc)
			stranger, otherVIP, other := c.other.Next(), c.vip.Next(), c
			other.forward = map[lb.Forward]lb.Forward{lb.IPIP: lb.GUE, lb.GUE: lb.IPIP}[c.forward]
			passed := map[lb.Forward]string{lb.IPIP: "pass_not_tcp_udp", lb.GUE: "pass_not_vip"}
			wantExit := func(in []byte, exit string) {
				t.Helper()
				wantDelivered(t, p, in, in, exit)
			}
			in := c.tunnelled(c.other, c.own, c.vip)
			opened := frame{destination: balancerMAC, source: clientMAC, ip: transport(svc.VIP, map[bool]netip.AddrPort{true: client4, false: client6}[c.vip.Is4()]),
				payload: "longer than the padding of a short frame"}
			wantDelivered(t, p, in, opened.build(), "pass_from_peer")
			wantExit(c.tunnelled(stranger, c.own, c.vip), passed[c.forward])
			wantExit(c.tunnelled(c.own, c.own, c.vip), passed[c.forward])
			wantExit(c.tunnelled(c.other, stranger, c.vip), passed[c.forward])
			wantExit(c.tunnelled(c.other, c.own, otherVIP), passed[c.forward])
			wantExit(c.tunnelled(c.other, c.own, c.vip, 100), passed[c.forward])
			wantExit(other.tunnelled(c.other, c.own, c.vip), passed[other.forward])
			otherPort, otherProtocol := svc.VIP, svc.VIP
			otherPort.Port, otherProtocol.Protocol = 22, lb.UDP
			wantExit(c.carrying(c.other, c.own, transport(otherPort, c.client(0))), passed[c.forward])
			wantExit(c.carrying(c.other, c.own, transport(otherProtocol, c.client(0))), passed[c.forward])
			for _, source := range []string{"127.0.0.1", "224.0.0.1", "::1", "ff02::1", c.own.String()} {
				if from := netip.MustParseAddr(source); from.Is4() == c.vip.Is4() {
					wantExit(c.carrying(c.other, c.own, transport(svc.VIP, netip.AddrPortFrom(from, 40000))), passed[c.forward])
				}
			}
			denied := *svc
			denied.Sources.Deny = []netip.Prefix{netip.PrefixFrom(c.client(0).Addr(), c.vip.BitLen())}
			update(t, p, &denied)
			wantBytes(t, p, in, in, xdpDrop, "drop_source_denied")
			remove(t, p, svc.VIP)
			wantExit(in, passed[c.forward])
		})
	}
}

// The congestion marks of tunnels between balancers reach the packet.
func TestMembersECN(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range membersBy(lb.IPIP) {
		svc := c.at(c.own, c.other)
		update(t, p, svc)
		for _, e := range ecnCases() {
			inner := transport(svc.VIP, c.client(0))
			mark(inner[0], e.within)
			protocol := layers.IPProtocolIPv6
			if c.vip.Is4() {
				protocol = layers.IPProtocolIPv4
			}
			in := frame{destination: balancerMAC, source: clientMAC, payload: "longer than the padding of a short frame"}
			in.ip = append([]gopacket.SerializableLayer{ipLayer(c.other, c.own, protocol)}, inner...)
			mark(in.ip[0], e.outer)
			sent := in.build()
			if e.want < 0 {
				wantVerdict(t, p, sent, xdpDrop, "drop_congested")
				continue
			}
			mark(inner[0], uint8(e.want))
			in.ip = inner
			wantDelivered(t, p, sent, in.build(), "pass_from_peer")
		}
		remove(t, p, svc.VIP)
	}
}

// A packet by L2 DSR is accepted while any service has the balancer that sent it as
// a member, also if others of its services have lost it.
func TestMembersAreCounted(t *testing.T) {
	p, hops := newTestPlane(t)
	c := memberCases()[0]
	svc, more := c.at(c.own, c.other), c.at(c.own, c.other)
	more.Port = 81
	for i := range more.Backends {
		more.Backends[i].Port = 81
	}
	wantMembers := func(n int) {
		t.Helper()
		var key table.BalancerPeerKey
		var what uint8
		it, found := p.Tables.Maps.Peers.Iterate(), 0
		for it.Next(&key, &what) {
			found++
		}
		if err := it.Err(); err != nil || found != n {
			t.Errorf("%d members, error %v, want %d", found, err, n)
		}
	}
	update(t, p, svc)
	update(t, p, more)
	wantMembers(1)
	remove(t, p, more.VIP)
	wantMembers(1)
	hops.lost[c.other] = true
	update(t, p, svc)
	wantMembers(0)
	delete(hops.lost, c.other)
	svc.Forward = lb.GUE
	update(t, p, svc)
	wantMembers(2)
	remove(t, p, svc.VIP)
	wantMembers(0)
}

// A successor drops the members of services that were deleted.
func TestMembersOutliveTheAgent(t *testing.T) {
	dir := testPins(t)
	first := openTestPlane(t, dir, newStaticHops())
	c := memberCase{lb.IPIP, vip4, local4, node4}
	svc := c.at(c.own, c.other)
	update(t, first, svc)
	must(t, first.Close())
	second := openTestPlane(t, dir, newStaticHops())
	in := c.tunnelled(c.other, c.own, c.vip)
	out := append(append(bytes.Clone(in[:12]), 0x08, 0), in[34:]...)
	if _, err := second.Program(); err != nil {
		t.Fatal(err)
	}
	wantDelivered(t, second, in, out, "pass_from_peer")
	must(t, second.Prune(context.Background(), nil))
	wantDelivered(t, second, in, in, "pass_not_tcp_udp")
	var key table.BalancerPeerKey
	if err := second.Tables.Maps.Peers.NextKey(nil, &key); err == nil {
		t.Errorf("left is %v", key)
	}
}
