// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"encoding/binary"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/lb"
)

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

// answerFrame is what the balancer says in answer to a frame: the same way
// back, with a TTL of its own.
func answerFrame(asked frame, from, to netip.Addr, m message) frame {
	f := icmpFrame(from, to, lb.Segment{}, m)
	f.destination, f.source, f.tags = asked.source, asked.destination, asked.tags
	switch ip := f.ip[0].(type) {
	case *layers.IPv4:
		ip.TTL, ip.TOS, ip.Id, ip.Flags = 64, 0xc0, 0, layers.IPv4DontFragment
	case *layers.IPv6:
		ip.HopLimit, ip.TrafficClass = 64, 0
	}
	return f
}

// unpadded is the frame without what fills it up to Ethernet's least length.
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
