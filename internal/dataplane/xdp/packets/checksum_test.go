// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fuzzrand"
)

// The checksum of a tunnel's UDP over IPv6 follows from the client's, whatever
// is in the packet; where the client's is missing, the packet is summed up.
func TestTunnelChecksum(t *testing.T) {
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	eachTunnel(t, func(t *testing.T, p *xdp.Unattached, svc *lb.Service) {
		for _, c := range []struct{ unsummed, surplus bool }{{}, {unsummed: true}, {surplus: true}} {
			if c.unsummed && (svc.Address.Is6() || svc.Protocol == lb.TCP) || c.surplus && svc.Protocol == lb.TCP {
				continue
			}
			for range 200 {
				in := randomPacket(random, svc.VIP, c.unsummed)
				if c.surplus { // the IP packet is longer than the datagram (RFC 9868)
					in = withSurplus(in, 1+random.IntN(9))
				}
				wantSummed(t, p, in)
			}
		}
	})
}

// The same holds for inner packets without a complete checksum: fragments and ICMP errors, of
// even and odd lengths.
func TestTunnelChecksumOfFragments(t *testing.T) {
	id := uint32(0)
	eachTunnel(t, func(t *testing.T, p *xdp.Unattached, svc *lb.Service) {
		client := clientOf(svc.Address, 4000)
		m := errorsOf(svc.Address)[0]
		m.body = packetOf(serverFrame(svc.VIP, client))[:49]
		packets := [][]byte{packetOf(icmpFrame(router(svc.Address), svc.Address, lb.Segment{}, m))}
		for length := range 9 {
			f := longFrame(svc, client, 800)
			f.payload += strings.Repeat("x", length)
			id++
			packets = append(packets, split(packetOf(f), id, 400)...)
		}
		for _, packet := range packets {
			if out := wantSummed(t, p, onWire(lb.Segment{}, packet)); !bytes.HasSuffix(out, packet) && len(packet) > 46 {
				t.Errorf("packet % x in % x", packet, out)
			}
		}
	})
}

// eachTunnel runs a test for each tunnel over UDP over IPv6, family and protocol.
func eachTunnel(t *testing.T, test func(t *testing.T, p *xdp.Unattached, svc *lb.Service)) {
	p, _ := newTestPlane(t)
	for _, forward := range []lb.Forward{lb.GUE, lb.VXLAN, lb.Geneve} {
		for _, vip := range []netip.Addr{vip4, vip6} {
			for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
				svc := &lb.Service{VIP: lb.VIP{Address: vip, Port: 80, Protocol: protocol}, Forward: forward, MinHealthy: 1}
				svc.Backends = reached(forward, []lb.Backend{{Address: backend6, Port: 80, Weight: 1}})
				t.Run(forward.String()+" "+svc.VIP.String(), func(t *testing.T) {
					update(t, p, svc)
					test(t, p, svc)
				})
				remove(t, p, svc.VIP)
			}
		}
	}
}

// wantSummed puts a frame in that leaves in a tunnel with a checksum, all of them right.
func wantSummed(t *testing.T, p *xdp.Unattached, in []byte) []byte {
	t.Helper()
	verdict, out := run(t, p, in)
	if wrong := wrongSum(out); verdict != xdpTX || wrong != "" || layers.IPProtocol(out[atNext6]) != layers.IPProtocolUDP {
		t.Fatalf("verdict %d, wrong %q\nof % x\nin % x", verdict, wrong, in, out)
	}
	return out
}

// randomPacket is one of a client, with IPv4 options now and then, without a
// transport checksum if that is wanted.
func randomPacket(random *rand.Rand, vip lb.VIP, unsummed bool) []byte {
	f := clientFrame(vip, clientOf(vip.Address, 41000))
	f.payload = string(noise(random, 20+random.IntN(1200)))
	header := 40
	if vip.Address.Is4() {
		header = 20
		if random.IntN(2) == 0 {
			f = withOptions(f)
			header += 4
		}
	}
	frame := f.build()
	if unsummed {
		copy(frame[atIP+header+6:], []byte{0, 0})
	}
	return frame
}

// withSurplus appends bytes to a packet that its datagram doesn't have.
func withSurplus(frame []byte, n int) []byte {
	frame = append(frame, bytes.Repeat([]byte{0xa5}, n)...)
	ip := frame[atIP:]
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(n))
		return frame
	}
	binary.BigEndian.PutUint16(ip[2:], binary.BigEndian.Uint16(ip[2:])+uint16(n))
	fixChecksum(ip)
	return frame
}

// wrongSum names the first wrong checksum of a frame and of the packets in its tunnels, or the
// first header that is cut off; "" if all is right. Fragments and payloads behind extension
// headers aren't summed.
func wrongSum(frame []byte) string {
	if len(frame) < ethernetHeader {
		return "frame"
	}
	kind, packet := binary.BigEndian.Uint16(frame[12:]), frame[ethernetHeader:]
	if kind == uint16(layers.EthernetTypeDot1Q) && len(packet) >= 4 {
		kind, packet = binary.BigEndian.Uint16(packet[2:]), packet[4:]
	}
	switch layers.EthernetType(kind) {
	case layers.EthernetTypeIPv4:
		return wrongSum4(packet)
	case layers.EthernetTypeIPv6:
		return wrongSum6(packet)
	}
	return ""
}

func wrongSum4(packet []byte) string {
	if len(packet) < 20 {
		return "ipv4 header"
	}
	header, length := int(packet[0]&0xf)*4, int(binary.BigEndian.Uint16(packet[2:]))
	switch {
	case packet[0]>>4 != 4 || header < 20 || length < header || length > len(packet):
		return "ipv4 length"
	case sum16(packet[:header]) != 0xffff:
		return "ipv4 checksum"
	case binary.BigEndian.Uint16(packet[6:])&0x3fff != 0:
		return ""
	}
	return wrongPayload(layers.IPProtocol(packet[9]), packet[12:20], packet[header:length])
}

func wrongSum6(packet []byte) string {
	if len(packet) < 40 {
		return "ipv6 header"
	}
	length := 40 + int(binary.BigEndian.Uint16(packet[4:]))
	if packet[0]>>4 != 6 || length > len(packet) {
		return "ipv6 length"
	}
	return wrongPayload(layers.IPProtocol(packet[6]), packet[8:40], packet[40:length])
}

// wrongPayload checks the payload of an IP header with these addresses.
func wrongPayload(protocol layers.IPProtocol, addresses, data []byte) string {
	pseudo := func(data []byte) uint16 {
		rest := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
		rest = binary.BigEndian.AppendUint32(append(append([]byte{}, addresses...), rest...), uint32(protocol))
		return sum16(append(rest, data...))
	}
	switch protocol {
	case layers.IPProtocolTCP:
		if len(data) < 20 || pseudo(data) != 0xffff {
			return "tcp checksum"
		}
	case layers.IPProtocolICMPv6:
		if pseudo(data) != 0xffff {
			return "icmpv6 checksum"
		}
	case layers.IPProtocolICMPv4:
		if sum16(data) != 0xffff {
			return "icmp checksum"
		}
	case layers.IPProtocolUDP:
		if len(data) < 8 || int(binary.BigEndian.Uint16(data[4:])) < 8 || int(binary.BigEndian.Uint16(data[4:])) > len(data) {
			return "udp length"
		}
		data = data[:binary.BigEndian.Uint16(data[4:])]
		unsummed := data[6] == 0 && data[7] == 0
		if unsummed && len(addresses) == 32 || !unsummed && pseudo(data) != 0xffff {
			return "udp checksum"
		}
		return wrongTunnel(binary.BigEndian.Uint16(data[2:]), data[8:])
	case layers.IPProtocolIPv4:
		return wrongSum4(data)
	case layers.IPProtocolIPv6:
		return wrongSum6(data)
	}
	return ""
}

// wrongTunnel checks a packet in a tunnel over UDP.
func wrongTunnel(port uint16, data []byte) string {
	if len(data) < 8 {
		return ""
	}
	switch {
	case port == 6080 && data[0] == 0 && data[1] == 4:
		return wrongSum4(data[4:])
	case port == 6080 && data[0] == 0 && data[1] == 41:
		return wrongSum6(data[4:])
	case port == 4789:
		return wrongSum(data[8:])
	case port == 6081 && len(data) >= 8+int(data[0]&0x3f)*4:
		return wrongSum(data[8+int(data[0]&0x3f)*4:])
	}
	return ""
}

// Every byte of a packet counts, within tunnels too.
func TestWrongSum(t *testing.T) {
	for name, frame := range map[string][]byte{
		"tcp": flowPacket(web4, client4), "tcp6": flowPacket(web6, client6),
		"vxlan": overlayFrame(lb.VIP{Address: vip4, Port: 80, Protocol: lb.UDP, Segment: redVXLAN}, local6).build(),
	} {
		if wrong := wrongSum(frame); wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
		for at := len(frame) - 24; at < len(frame); at++ {
			if frame[at] ^= 0x10; wrongSum(frame) == "" {
				t.Errorf("%s: byte %d doesn't count", name, at)
			}
			frame[at] ^= 0x10
		}
	}
}
