// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/lb"
)

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

// wrongPayload checks what follows an IP header with these addresses.
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
