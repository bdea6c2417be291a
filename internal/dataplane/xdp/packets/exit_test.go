// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"maps"
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
		{"pass_malformed", "ipv6: mapped destination", flowPacketTo(netip.AddrFrom16(vip4.As16()), client6)},
		{"pass_malformed", "ipv6: mapped source", mappedSource()},
		{"pass_malformed", "ipv6: wrong version", changed(web6, client6, atIP, 0x40)},
		{"pass_truncated", "ipv6: length beyond the frame", changed(web6, client6, atLength6, 4, 0)},
		{"pass_truncated", "ipv6: ends within tcp", changed(web6, client6, atLength6, 0, 19)},
		{"pass_truncated", "ipv6: cut within tcp", flowPacket(web6, client6)[:atIP+59]},
		{"pass_truncated", "ipv6: no transport", changed(web6, client6, atLength6, 0, 0)},
		{"pass_not_tcp_udp", "ipv6: icmp", changed(web6, client6, atNext6, 1)},
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
	var got uint32
	var out []byte
	moved := exits(t, p, func() { got, out = run(t, p, in) })
	if got != verdict {
		t.Errorf("verdict %d, want %d", got, verdict)
	}
	if !bytes.Equal(out, in) {
		t.Errorf("the frame was changed:\n% x\n% x", in, out)
	}
	if want := map[string]uint64{counter: 1}; !maps.Equal(moved, want) {
		t.Errorf("counters %v, want %v", moved, want)
	}
}

// A VIP's packet that can't be delivered is dropped.
func TestDrop(t *testing.T) {
	p, _ := newTestPlane(t)
	empty := manyBackends(vip4, 0)
	update(t, p, empty)
	wantExit(t, p, flowPacket(empty.VIP, client4), xdpDrop, "drop_no_backend")
}

// A VIP's packet with IPv4 options goes the way of one without.
func TestOptions(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := manyBackends(vip4, 16)
	update(t, p, svc)
	plain := clientFrame(svc.VIP, client4)
	_, want := run(t, p, plain.build())
	plain.ip[0].(*layers.IPv4).Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
	in := plain.build()
	verdict, out := run(t, p, in)
	if verdict != xdpTX || !bytes.Equal(out[:12], want[:12]) || !bytes.Equal(out[12:], in[12:]) {
		t.Errorf("verdict %d, frame % x, want the link layer of % x", verdict, out, want)
	}
}

// A priority tag (id 0) marks no network: the service of the untagged one is
// meant.
func TestPriorityTag(t *testing.T) {
	p, _ := newTestPlane(t)
	update(t, p, manyBackends(vip4, 3))
	verdict, out := run(t, p, withTags(5<<13))
	if want := withTags()[12:]; verdict != xdpTX || !bytes.Equal(out[12:], want) {
		t.Errorf("verdict %d, frame % x, want untagged % x", verdict, out[12:], want)
	}
}
