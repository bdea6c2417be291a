// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
)

var (
	web4 = lb.VIP{Address: vip4, Port: 80, Protocol: lb.TCP}
	web6 = lb.VIP{Address: vip6, Port: 80, Protocol: lb.TCP}
)

// Offsets of header fields in an untagged frame.
const (
	atIP       = 14
	atLength4  = atIP + 2
	atFragment = atIP + 6
	atProtocol = atIP + 9
	atLength6  = atIP + 4
	atNext6    = atIP + 6
)

// changed returns a VIP's packet with bytes from offset on set to others.
func changed(vip lb.VIP, client netip.AddrPort, offset int, values ...byte) []byte {
	frame := flowPacket(vip, client)
	copy(frame[offset:], values)
	return frame
}

// flowPacketTo is an IPv6 packet to that address, as it is.
func flowPacketTo(to netip.Addr, client netip.AddrPort) []byte {
	frame := flowPacket(web6, client)
	destination := to.As16()
	copy(frame[atIP+24:], destination[:])
	return frame
}

// mappedSource is an IPv6 packet from the mapped address of an IPv4 client.
func mappedSource() []byte {
	frame := flowPacket(web6, client6)
	source := client4.Addr().As16()
	copy(frame[atIP+8:], source[:])
	return frame
}

// withTags returns a VIP's packet behind VLAN tags.
func withTags(tags ...uint16) []byte {
	f := clientFrame(web4, client4)
	f.tags = tags
	return f.build()
}

// withType returns a frame of another Ethertype.
func withType(kind layers.EthernetType) []byte {
	return serialize(&layers.Ethernet{DstMAC: balancerMAC[:], SrcMAC: clientMAC[:], EthernetType: kind},
		gopacket.Payload("something else that is as long as a frame has to be at least"))
}

// ping is an echo request to an untagged address.
func ping(from, to netip.Addr) frame {
	return icmpFrame(from, to, lb.Segment{}, echoRequest[family(to)])
}

func pingWithOptions() []byte {
	f := ping(client4.Addr(), vip4)
	f.ip[0].(*layers.IPv4).Options = []layers.IPv4Option{
		{OptionType: 131, OptionLength: 7, OptionData: []byte{4, 192, 0, 2, 1}}, {OptionType: 0},
	}
	return f.build()
}

// Whatever isn't a VIP's packet reaches the kernel as it came, and the counter
// says why.
func TestPass(t *testing.T) {
	p, _ := newTestPlane(t)
	update(t, p, manyBackends(vip4, 3))
	update(t, p, manyBackends(vip6, 3))
	otherPort, otherProtocol := web4, web4
	otherPort.Port, otherProtocol.Protocol = 81, lb.UDP
	for _, c := range []struct {
		counter, name string
		frame         []byte
	}{
		{"pass_not_ip", "arp", withType(layers.EthernetTypeARP)},
		{"pass_not_ip", "lldp", withType(0x88cc)},
		{"pass_not_ip", "arp in a vlan", changedTo(withTags(100), 16, 0x08, 0x06)},
		{"pass_vlan_stacked", "two tags", withTags(100, 200)},
		{"pass_vlan_stacked", "service tag", withType(layers.EthernetTypeQinQ)},
		{"pass_not_vip", "a vlan that has no such vip", withTags(100)},
		{"pass_not_vip", "other port", flowPacket(otherPort, client4)},
		{"pass_not_vip", "other protocol", flowPacket(otherProtocol, client4)},
		{"pass_malformed", "ipv4: wrong version", changed(web4, client4, atIP, 0x65)},
		{"pass_malformed", "ipv4: header below its minimum", changed(web4, client4, atIP, 0x44)},
		{"pass_malformed", "ipv4: length below the header", changed(web4, client4, atLength4, 0, 19)},
		{"pass_truncated", "ipv4: length beyond the frame", changed(web4, client4, atLength4, 4, 0)},
		{"pass_truncated", "ipv4: ends within tcp", changed(web4, client4, atLength4, 0, 39)},
		{"pass_truncated", "ipv4: ends within udp", changed(otherProtocol, client4, atLength4, 0, 27)},
		{"pass_truncated", "ipv4: options leave no room for tcp", changed(web4, client4, atIP, 0x4f, 0, 0, 79)},
		{"pass_not_tcp_udp", "ipv4: icmpv6", changed(web4, client4, atProtocol, 58)},
		{"pass_not_tcp_udp", "ipv4: sctp", changed(web4, client4, atProtocol, 132)},
		{"pass_not_tcp_udp", "ipv4: ping with options", pingWithOptions()},
		{"pass_malformed", "ipv6: mapped destination", flowPacketTo(netip.AddrFrom16(vip4.As16()), client6)},
		{"pass_malformed", "ipv6: mapped source", mappedSource()},
		{"pass_malformed", "ipv6: wrong version", changed(web6, client6, atIP, 0x40)},
		{"pass_truncated", "ipv6: length beyond the frame", changed(web6, client6, atLength6, 4, 0)},
		{"pass_truncated", "ipv6: ends within tcp", changed(web6, client6, atLength6, 0, 19)},
		{"pass_truncated", "ipv6: cut within tcp", flowPacket(web6, client6)[:atIP+59]},
		{"pass_truncated", "ipv6: no transport", changed(web6, client6, atLength6, 0, 0)},
		{"pass_not_tcp_udp", "ipv6: icmp", changed(web6, client6, atNext6, 1)},
		{"pass_not_tcp_udp", "ipv6: ping with an extension header", chain(ping(client6.Addr(), vip6).build(), 43)},
		{"pass_not_tcp_udp", "ipv6: mobility", changed(web6, client6, atNext6, 135)},
		{"pass_truncated", "ipv6: cut within an extension header", changed(web6, client6, atNext6, 60)[:atIP+47]},
	} {
		t.Run(c.name, func(t *testing.T) { wantExit(t, p, c.frame, xdpPass, c.counter) })
	}
}

func changedTo(frame []byte, offset int, values ...byte) []byte {
	copy(frame[offset:], values)
	return frame
}

// wantExit puts a frame in that must come out untouched.
func wantExit(t *testing.T, p *xdp.Unattached, in []byte, verdict uint32, counter string) {
	t.Helper()
	wantBytes(t, p, in, in, verdict, counter)
}
