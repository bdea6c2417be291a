// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
)

// steerCase is a service whose servers' packets cause errors.
type steerCase struct {
	forward  lb.Forward
	vip      netip.Addr
	protocol lb.Protocol
	affinity lb.Affinity
	segment  lb.Segment
}

func (c steerCase) String() string {
	return fmt.Sprintf("%s/%s/%s/%s/segment %s %d", c.forward, family(c.vip), c.protocol, c.affinity, c.segment.Type, c.segment.ID)
}

func (c steerCase) service() *lb.Service {
	svc := manyBackends(c.vip, 16)
	svc.Protocol, svc.Forward, svc.Affinity, svc.Segment = c.protocol, c.forward, c.affinity, c.segment
	svc.Backends = reached(c.forward, svc.Backends)
	return svc
}

// flowPacket is a packet of a client's flow.
func (c steerCase) flowPacket(client netip.AddrPort) []byte {
	return onWire(c.segment, packetOf(clientFrame(lb.VIP{Address: c.vip, Port: 80, Protocol: c.protocol}, client)))
}

// steerCases has every mode, and each affinity and segment once.
func steerCases() []steerCase {
	var cases []steerCase
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			for _, forward := range tunnelledForwards() {
				cases = append(cases, steerCase{forward: forward, vip: vip, protocol: protocol})
			}
			cases = append(cases, steerCase{forward: lb.L2DSR, vip: vip, protocol: protocol, affinity: lb.AffinityClient})
		}
		for _, s := range []lb.Segment{segment(100), redVXLAN, redGeneve} {
			cases = append(cases, steerCase{forward: lb.L2DSR, vip: vip, protocol: lb.UDP, segment: s},
				steerCase{forward: lb.GUE, vip: vip, protocol: lb.TCP, segment: s})
		}
	}
	return cases
}

// errorsOf are the messages of a family that are about a packet.
func errorsOf(vip netip.Addr) []message {
	if vip.Is4() {
		return []message{{kind: 3, code: 1}, {kind: 3, code: 4, rest: 1400}, {kind: 11}, {kind: 12, rest: 20 << 24}}
	}
	return []message{{kind: 1, code: 3}, {kind: 2, rest: 1400}, {kind: 3}, {kind: 4, rest: 40}}
}

// Routers' errors about what a server sent reach the server that sent it,
// from any router, however little it quotes.
func TestErrorsFollowTheirFlow(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range steerCases() {
		t.Run(c.String(), func(t *testing.T) {
			svc := c.service()
			update(t, p, svc)
			defer remove(t, p, svc.VIP)
			for i := range 8 {
				client := clientOf(c.vip, 2000+i)
				_, flow := run(t, p, c.flowPacket(client))
				quote := packetOf(serverFrame(svc.VIP, client))
				if i%2 == 0 {
					quote = quote[:map[bool]int{true: 28, false: 48}[c.vip.Is4()]]
				}
				m := errorsOf(c.vip)[i%4]
				m.body = quote
				wantSteered(t, p, c, packetOf(icmpFrame(router(c.vip), c.vip, lb.Segment{}, m)), flow)
			}
		})
	}
}

// router has an address that is neither the client's nor the VIP's.
func router(vip netip.Addr) netip.Addr {
	if vip.Is4() {
		return netip.MustParseAddr("203.0.113.1")
	}
	return netip.MustParseAddr("2001:db8:ffff::1")
}

// wantSteered puts a packet in that has to go where a frame of its flow went.
func wantSteered(t *testing.T, p *xdp.Unattached, c steerCase, packet, flow []byte) {
	t.Helper()
	var verdict uint32
	var out []byte
	moved := exits(t, p, func() { verdict, out = run(t, p, onWire(c.segment, packet)) })
	if verdict != xdpTX || !maps.Equal(moved, map[string]uint64{"forward_" + c.forward.String(): 1}) {
		t.Fatalf("verdict %d, counters %v", verdict, moved)
	}
	if !bytes.Equal(out[:12], flow[:12]) {
		t.Errorf("steered to % x, the flow goes to % x", out[:12], flow[:12])
	}
	if !bytes.Contains(out, packet) {
		t.Errorf("the packet was changed:\n% x\n% x", packet, out)
	}
}

// What quotes no flow of a VIP, or quotes too little, is left to the kernel as
// it came.
func TestErrorsOfNoFlow(t *testing.T) {
	p, _ := newTestPlane(t)
	svc4, svc6 := manyBackends(vip4, 3), manyBackends(vip6, 3)
	update(t, p, svc4)
	update(t, p, svc6)
	quote4, quote6 := packetOf(serverFrame(svc4.VIP, client4)), packetOf(serverFrame(svc6.VIP, client6))
	other := web4
	other.Port = 81
	with := func(quote []byte, offset int, values ...byte) []byte {
		return changedTo(bytes.Clone(quote), offset, values...)
	}
	error4 := func(kind uint8, quote []byte) []byte {
		return icmpFrame(router(vip4), vip4, lb.Segment{}, message{kind: kind, body: quote}).build()
	}
	error6 := func(kind uint8, quote []byte) []byte {
		return icmpFrame(router(vip6), vip6, lb.Segment{}, message{kind: kind, body: quote}).build()
	}
	for _, c := range []struct {
		counter, name string
		frame         []byte
	}{
		{"pass_not_vip", "ipv4: port without service", error4(3, packetOf(serverFrame(other, client4)))},
		{"pass_not_vip", "ipv4: echo request for another address", icmpFrame(router(vip4), router(vip4), lb.Segment{}, echoRequest["ipv4"]).build()},
		{"pass_not_tcp_udp", "ipv4: redirect", error4(5, quote4)},
		{"pass_not_tcp_udp", "ipv4: time stamp", error4(13, quote4)},
		{"pass_not_tcp_udp", "ipv4: echo reply", error4(0, quote4)},
		{"pass_not_tcp_udp", "ipv4: quoted icmp", error4(3, with(quote4, 9, 1))},
		{"pass_malformed", "ipv4: quoted source is not the vip", error4(3, with(quote4, 15, 9))},
		{"pass_malformed", "ipv4: quoted version", error4(3, with(quote4, 0, 0x65))},
		{"pass_malformed", "ipv4: quoted header length", error4(3, with(quote4, 0, 0x44))},
		{"pass_fragment", "ipv4: quoted later fragment", error4(3, with(quote4, 6, 0, 1))},
		{"pass_truncated", "ipv4: quote ends within ports", error4(3, quote4[:23])},
		{"pass_truncated", "ipv4: quote ends within header", error4(3, quote4[:19])},
		{"pass_truncated", "ipv4: nothing quoted", error4(3, nil)},
		{"pass_truncated", "ipv4: ends within icmp", changedTo(error4(3, nil), atLength4, 0, 27)},
		{"pass_not_tcp_udp", "ipv6: neighbour solicitation", error6(135, quote6)},
		{"pass_not_tcp_udp", "ipv6: unknown error", error6(5, quote6)},
		{"pass_malformed", "ipv6: quoted source is not the vip", error6(1, with(quote6, 23, 9))},
		{"pass_malformed", "ipv6: quoted version", error6(1, with(quote6, 0, 0x40))},
		{"pass_truncated", "ipv6: quote ends within ports", error6(1, quote6[:43])},
		{"pass_truncated", "ipv6: quote ends within header", error6(1, quote6[:39])},
		{"pass_fragment", "ipv6: quoted later fragment", error6(1, quotedFragment(quote6, 8))},
	} {
		t.Run(c.name, func(t *testing.T) { wantExit(t, p, c.frame, xdpPass, c.counter) })
	}
}

// quotedFragment is an IPv6 packet with a fragment header.
func quotedFragment(packet []byte, offset uint16) []byte {
	return withExtension(packet, 44, fragmentHeader(packet[6], 7, offset))
}

// A quoted packet may have extension headers itself.
func TestErrorQuotesExtensionHeaders(t *testing.T) {
	p, _ := newTestPlane(t)
	c := steerCase{lb.L2DSR, vip6, lb.TCP, lb.AffinityFlow, lb.Segment{}}
	svc := c.service()
	update(t, p, svc)
	_, flow := run(t, p, c.flowPacket(client6))
	quote := packetOf(serverFrame(svc.VIP, client6))
	for _, body := range [][]byte{quotedFragment(quote, 1), withExtension(quote, 60, optionsHeader(6, 16))} {
		wantSteered(t, p, c, packetOf(icmpFrame(router(vip6), vip6, lb.Segment{}, message{kind: 2, rest: 1400, body: body})), flow)
	}
}

// While a flow is where it was before a change of backends, so are its errors;
// they leave no record themselves.
func TestErrorsFollowATrackedFlow(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range steerCases() {
		if c.protocol != lb.TCP || c.segment != (lb.Segment{}) {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			svc := c.service()
			svc.Backends = svc.Backends[:2]
			update(t, p, svc)
			defer remove(t, p, svc.VIP)
			more := c.service()
			update(t, p, more)
			for i := range 40 {
				client := clientOf(c.vip, 2000+i)
				recorded := stats(t, p).Services[svc.VIP].Tracking.Inserts
				m := errorsOf(c.vip)[i%4]
				m.body = packetOf(serverFrame(svc.VIP, client))
				in := packetOf(icmpFrame(router(c.vip), c.vip, lb.Segment{}, m))
				_, steered := run(t, p, onWire(c.segment, in))
				if now := stats(t, p).Services[svc.VIP].Tracking.Inserts; now != recorded {
					t.Fatalf("an error made %d flow records", now-recorded)
				}
				open := clientFrame(svc.VIP, client)
				tcp := open.ip[1].(*layers.TCP)
				tcp.SYN, tcp.ACK = false, true
				_, flow := run(t, p, open.build())
				if !bytes.Equal(steered[:12], flow[:12]) {
					t.Fatalf("steered to % x, the flow goes to % x", steered[:12], flow[:12])
				}
				wantSteered(t, p, c, in, flow)
			}
		})
	}
}
