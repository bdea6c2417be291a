// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
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

// All fragments of a packet, of every size, go where a whole packet of the flow goes, and arrive
// as they were sent. So do routers' errors about a server's packets, from any router, however
// little they quote.
func TestSteering(t *testing.T) {
	p, _ := newTestPlane(t)
	id := uint32(0)
	for _, c := range steerCases() {
		t.Run(c.String(), func(t *testing.T) {
			svc := c.service()
			update(t, p, svc)
			defer remove(t, p, svc.VIP)
			inside := *svc
			inside.Segment = lb.Segment{}
			for i, size := range []int{24, 256, 1400} {
				id++
				client := clientOf(c.vip, 3000+i)
				_, flow := run(t, p, c.flowPacket(client))
				for _, part := range split(packetOf(longFrame(&inside, client, min(4000, 6*size))), id, size) {
					wantSteered(t, p, c, part, flow)
				}
			}
			for i := range 8 {
				client := clientOf(c.vip, 2000+i)
				_, flow := run(t, p, c.flowPacket(client))
				quote := packetOf(serverFrame(svc.VIP, client))
				if i%2 == 0 {
					quote = quote[:map[bool]int{true: 28, false: 48}[c.vip.Is4()]]
				}
				wantSteered(t, p, c, c.errorAbout(i, quote), flow)
			}
		})
	}
}

// errorAbout is the nth error of a router, with a quote.
func (c steerCase) errorAbout(n int, quote []byte) []byte {
	m := errorsOf(c.vip)[n%4]
	m.body = quote
	return packetOf(icmpFrame(router(c.vip), c.vip, lb.Segment{}, m))
}

// errorAbout is an error from a router about a packet of the VIP's server to a
// client.
func errorAbout(vip lb.VIP, client netip.AddrPort, from netip.Addr) frame {
	m := errorsOf(vip.Address)[0]
	m.body = packetOf(serverFrame(vip, client))
	return icmpFrame(from, vip.Address, vip.Segment, m)
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
	out := wantVerdict(t, p, onWire(c.segment, packet), xdpTX, "forward_"+c.forward.String())
	if !bytes.Equal(out[:12], flow[:12]) {
		t.Errorf("steered to % x, the flow goes to % x", out[:12], flow[:12])
	}
	if !bytes.Contains(out, packet) {
		t.Errorf("the packet was changed:\n% x\n% x", packet, out)
	}
}

// Errors that quote no flow of a VIP, or too little, pass to the kernel unchanged.
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
		wantSteered(t, p, c, c.errorAbout(1, body), flow)
	}
}

// While a flow is where it was before a change of backends, so are its errors;
// they leave no record themselves.
func TestErrorsOfTrackedFlows(t *testing.T) {
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
				in := c.errorAbout(i, packetOf(serverFrame(svc.VIP, client)))
				_, steered := run(t, p, onWire(c.segment, in))
				if now := stats(t, p).Services[svc.VIP].Tracking.Inserts; now != recorded {
					t.Fatalf("an error made %d flow records", now-recorded)
				}
				_, flow := run(t, p, tcpSegment(svc.VIP, client, func(*layers.TCP) {}))
				if !bytes.Equal(steered[:12], flow[:12]) {
					t.Fatalf("steered to % x, the flow goes to % x", steered[:12], flow[:12])
				}
				wantSteered(t, p, c, in, flow)
			}
		})
	}
}

// message is an ICMP or ICMPv6 message; the packet around it says which.
type message struct {
	kind, code uint8
	rest       uint32 // the second word of the header
	body       []byte
}

// Kinds of messages by family (RFC 792, RFC 4443).
var (
	echoRequest = map[string]message{
		"ipv4": {kind: 8, rest: 0x12340001, body: []byte("abcdefghijklmnopqrstuvwxyz")},
		"ipv6": {kind: 128, rest: 0x12340001, body: []byte("abcdefghijklmnopqrstuvwxyz")},
	}
	echoReply = map[string]uint8{"ipv4": 0, "ipv6": 129}
)

// icmpFrame is a message from one address to another, as the router sends it,
// with a TTL of 60.
func icmpFrame(from, to netip.Addr, segment lb.Segment, m message) frame {
	f := frame{destination: balancerMAC, source: clientMAC}
	if segment.Tagged() {
		f.tags = []uint16{5<<13 | uint16(segment.ID)}
	}
	protocol := layers.IPProtocolICMPv4
	if to.Is6() {
		protocol = layers.IPProtocolICMPv6
	}
	ip := ipLayer(from, to, protocol)
	f.ip = []gopacket.SerializableLayer{ip}
	if to.Is4() {
		f.ip = append(f.ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(m.kind, m.code), Id: uint16(m.rest >> 16), Seq: uint16(m.rest)})
		f.payload = string(m.body)
		return f
	}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(m.kind, m.code)}
	_ = icmp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)) // only fails for other layers
	f.ip = append(f.ip, icmp)
	f.payload = string(append(binary.BigEndian.AppendUint32(nil, m.rest), m.body...))
	return f
}

// answerFrame is the balancer's answer to a frame: the same way back, with a TTL of
// its own.
func answerFrame(asked frame, from, to netip.Addr, m message) frame {
	f := icmpFrame(from, to, lb.Segment{}, m)
	f.destination, f.source, f.tags = asked.source, asked.destination, asked.tags
	ownHeader(f.ip[0], 0xc0)
	return f
}

// ownHeader makes an IP header one of a packet that the balancer has made.
func ownHeader(layer gopacket.SerializableLayer, tos uint8) {
	switch ip := layer.(type) {
	case *layers.IPv4:
		ip.TTL, ip.TOS, ip.Id, ip.Flags = 64, tos, 0, layers.IPv4DontFragment
	case *layers.IPv6:
		ip.HopLimit, ip.TrafficClass = 64, 0
	}
}

// unpadded returns the frame without the padding to Ethernet's least length.
func (f frame) unpadded() []byte {
	out := f.build()
	at := atIP + 4*len(f.tags)
	length := int(binary.BigEndian.Uint16(out[at+2:]))
	if out[at]>>4 == 6 {
		length = 40 + int(binary.BigEndian.Uint16(out[at+4:]))
	}
	return out[:at+length]
}

// packetOf is the IP packet in a frame.
func packetOf(f frame) []byte { return f.unpadded()[atIP+4*len(f.tags):] }

// serverFrame is a packet that the VIP's server sends to the client.
func serverFrame(vip lb.VIP, client netip.AddrPort) frame {
	from := lb.VIP{Address: client.Addr(), Port: client.Port(), Protocol: vip.Protocol}
	return frame{ip: transport(from, netip.AddrPortFrom(vip.Address, vip.Port)), payload: "what the server had to say"}
}

// clientOf is a client of the VIP's family with that port.
func clientOf(vip netip.Addr, port int) netip.AddrPort {
	if vip.Is4() {
		return netip.AddrPortFrom(client4.Addr(), uint16(port))
	}
	return netip.AddrPortFrom(client6.Addr(), uint16(port))
}

// onWire is the frame in which a packet arrives in a segment.
func onWire(s lb.Segment, packet []byte) []byte {
	f := frame{destination: balancerMAC, source: clientMAC, ip: []gopacket.SerializableLayer{gopacket.Payload(packet)}}
	switch {
	case s.Overlay():
		f.ip = arriving(s, local4, f.ip)
	case s.Tagged():
		f.tags = []uint16{5<<13 | uint16(s.ID)}
	}
	return f.build()
}

// edgeFrames are packets that a VIP's address gets in addition to those that begin with
// ports: ICMP, fragments, extension headers, and one that is too big.
func edgeFrames(vip lb.VIP) [][]byte {
	client := clientOf(vip.Address, 41000)
	var packets [][]byte
	for _, m := range errorsOf(vip.Address) {
		m.body = packetOf(serverFrame(vip, client))
		packets = append(packets, packetOf(icmpFrame(router(vip.Address), vip.Address, lb.Segment{}, m)))
	}
	packets = append(packets, packetOf(icmpFrame(client.Addr(), vip.Address, lb.Segment{}, echoRequest[family(vip.Address)])))
	long := packetOf(longFrame(manyBackends(vip.Address, 1), client, 1600))
	packets = append(append(packets, long), split(long, uint32(vip.Protocol), 600)...)
	var frames [][]byte
	for _, packet := range packets {
		frames = append(frames, onWire(vip.Segment, packet))
	}
	if vip.Address.Is6() {
		frames = append(frames, chain(flowPacket(vip, client), 0, 60, 44, 51))
	}
	return frames
}
