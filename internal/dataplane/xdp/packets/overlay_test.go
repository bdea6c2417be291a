// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
)

var (
	// gatewayMAC is the sender of frames within a segment, and segmentMAC their
	// destination there.
	gatewayMAC = lb.MAC{2, 0, 0, 0, 1, 1}
	segmentMAC = lb.MAC{2, 0, 0, 0, 1, 2}
	gateway4   = netip.MustParseAddr("10.0.2.1")
	gateway6   = netip.MustParseAddr("fd00:2::1")
)

// ethertype returns a packet's EtherType by its first header.
func ethertype(ip []gopacket.SerializableLayer) layers.EthernetType {
	switch first := ip[0].(type) {
	case *layers.IPv4:
		return layers.EthernetTypeIPv4
	case gopacket.Payload:
		if first[0]>>4 == 4 {
			return layers.EthernetTypeIPv4
		}
	}
	return layers.EthernetTypeIPv6
}

// segmentHeader is a VXLAN or Geneve header.
func segmentHeader(s lb.Segment) gopacket.SerializableLayer {
	if s.Type == lb.SegmentVXLAN {
		return &layers.VXLAN{ValidIDFlag: true, VNI: s.ID}
	}
	return &layers.Geneve{Protocol: layers.EthernetTypeTransparentEthernetBridging, VNI: s.ID}
}

func segmentPort(s lb.Segment) layers.UDPPort {
	if s.Type == lb.SegmentVXLAN {
		return 4789
	}
	return 6081
}

// overUDP is UDP behind an outer IP header, with a checksum.
func overUDP(outer gopacket.SerializableLayer, from, to layers.UDPPort) []gopacket.SerializableLayer {
	udp := &layers.UDP{SrcPort: from, DstPort: to}
	_ = udp.SetNetworkLayerForChecksum(outer.(gopacket.NetworkLayer)) // only fails for other layers
	return []gopacket.SerializableLayer{outer, udp}
}

// inSegment puts a packet into a frame of a segment.
func inSegment(s lb.Segment, source, destination lb.MAC, packet []gopacket.SerializableLayer) []gopacket.SerializableLayer {
	ethernet := &layers.Ethernet{SrcMAC: net.HardwareAddr(source[:]), DstMAC: net.HardwareAddr(destination[:]), EthernetType: ethertype(packet)}
	return slices.Concat([]gopacket.SerializableLayer{segmentHeader(s), ethernet}, packet)
}

// arriving is a packet as a tunnel end point of the client's network sends it to
// one of this node.
func arriving(s lb.Segment, end netip.Addr, packet []gopacket.SerializableLayer) []gopacket.SerializableLayer {
	from := gateway6
	if end.Is4() {
		from = gateway4
	}
	outer := ipLayer(from, end, layers.IPProtocolUDP)
	return slices.Concat(overUDP(outer, 50000, segmentPort(s)), inSegment(s, gatewayMAC, segmentMAC, packet))
}

// overlayFrame is a frame of a segment that holds a packet to the VIP.
func overlayFrame(vip lb.VIP, end netip.Addr) frame {
	f := frame{destination: balancerMAC, source: clientMAC, payload: "longer than the padding of a short frame"}
	f.ip = arriving(vip.Segment, end, transport(vip, client4))
	return f
}

var (
	redVXLAN  = lb.Segment{Type: lb.SegmentVXLAN, ID: 5001}
	redGeneve = lb.Segment{Type: lb.SegmentGeneve, ID: 5001}
)

// Offsets in an untagged frame whose outer header is IPv4's.
const (
	atOuterUDP = atIP + 20
	atSegment  = atOuterUDP + 8
	atInner    = atSegment + 8
	atInnerIP  = atInner + 14
)

// Packets in a segment that are malformed, or not for a VIP there, reach the kernel
// unchanged.
func TestPassOverlay(t *testing.T) {
	p, _ := newTestPlane(t)
	vxlan, geneve := manyBackends(vip4, 3), manyBackends(vip4, 3)
	vxlan.Segment, geneve.Segment = redVXLAN, redGeneve
	update(t, p, vxlan)
	update(t, p, geneve)
	other, plain := vxlan.VIP, vxlan.VIP
	other.Segment.ID = 5002
	plain.Segment = lb.Segment{}
	foreign := func(vip lb.VIP, end netip.Addr) []byte {
		f := overlayFrame(vip, end)
		switch outer := f.ip[0].(type) {
		case *layers.IPv4:
			outer.SrcIP = net.IP{10, 0, 2, 2}
		case *layers.IPv6:
			outer.SrcIP[15]++
		}
		return f.build()
	}
	in := func(vip lb.VIP, offset int, values ...byte) []byte {
		return changedTo(overlayFrame(vip, local4).build(), offset, values...)
	}
	for _, c := range []struct {
		counter, name string
		frame         []byte
	}{
		{"pass_not_vip", "the VIP outside its segments", flowPacket(plain, client4)},
		{"pass_not_vip", "other identifier", overlayFrame(other, local4).build()},
		{"pass_not_vip", "other address", in(vxlan.VIP, atInnerIP+19, 9)},
		{"pass_not_vip", "tunnel end of another node", overlayFrame(vxlan.VIP, netip.MustParseAddr("10.0.2.12")).build()},
		{"pass_not_vip", "tunnel end of another node, ipv6", overlayFrame(geneve.VIP, netip.MustParseAddr("fd00:2::12")).build()},
		{"pass_not_vip", "other port", in(vxlan.VIP, atOuterUDP+2, 0x12, 0xb6)},
		{"pass_not_tunnel_peer", "vxlan from another host", foreign(vxlan.VIP, local4)},
		{"pass_not_tunnel_peer", "vxlan from another host, ipv6", foreign(vxlan.VIP, local6)},
		{"pass_not_tunnel_peer", "geneve from another host", foreign(geneve.VIP, local4)},
		{"pass_overlay", "vxlan without identifier", in(vxlan.VIP, atSegment, 0)},
		{"pass_overlay", "geneve version", in(geneve.VIP, atSegment, 0x40)},
		{"pass_overlay", "geneve control packet", in(geneve.VIP, atSegment+1, 0x80)},
		{"pass_overlay", "geneve critical option", in(geneve.VIP, atSegment+1, 0x40)},
		{"pass_overlay", "geneve with ip inside", in(geneve.VIP, atSegment+2, 0x08, 0)},
		{"pass_truncated", "geneve options beyond the frame", in(geneve.VIP, atSegment, 0x3f)},
		{"pass_not_ip", "arp", in(vxlan.VIP, atInner+12, 0x08, 0x06)},
		{"pass_vlan_stacked", "tag in the segment", in(geneve.VIP, atInner+12, 0x81, 0)},
		{"pass_not_tcp_udp", "icmp", in(vxlan.VIP, atInnerIP+9, 1)},
		{"pass_fragment", "fragment outside", in(vxlan.VIP, atFragment, 0x20, 0)},
		{"pass_malformed", "no ip inside", in(vxlan.VIP, atInnerIP, 0x65)},
		{"pass_malformed", "longer than what carries it", in(vxlan.VIP, atLength4, 0, 60)},
	} {
		t.Run(c.name, func(t *testing.T) { wantExit(t, p, c.frame, xdpPass, c.counter) })
	}
	must(t, p.Tables.SetTunnels([]netip.Addr{local6}, []netip.Prefix{netip.PrefixFrom(gateway4, 32)}))
	wantExit(t, p, overlayFrame(vxlan.VIP, local4).build(), xdpPass, "pass_not_vip")
	wantExit(t, p, overlayFrame(vxlan.VIP, local6).build(), xdpPass, "pass_not_tunnel_peer")
}

// Options of Geneve that may be ignored are, however long they are.
func TestGeneveOptions(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := manyBackends(vip4, 3)
	svc.Segment = redGeneve
	update(t, p, svc)
	_, want := run(t, p, overlayFrame(svc.VIP, local6).build())
	for size := 0; size <= 252; size += 12 {
		f := overlayFrame(svc.VIP, local6)
		header := f.ip[2].(*layers.Geneve)
		for range size / 12 {
			header.Options = append(header.Options, &layers.GeneveOption{Class: 0x0102, Type: 7, Data: make([]byte, 8)})
		}
		if verdict, out := run(t, p, f.build()); verdict != xdpTX || string(out) != string(want) {
			t.Errorf("%d bytes of options: verdict %d and\n% x, want\n% x", size, verdict, out, want)
		}
	}
}

// One VIP may be a service in every segment, each with its own backend.
func TestSameVIPInEverySegment(t *testing.T) {
	p, _ := newTestPlane(t)
	blue := func(s lb.Segment) lb.Segment { return lb.Segment{Type: s.Type, ID: 5002} }
	segments := []lb.Segment{{}, segment(100), segment(200), redVXLAN, blue(redVXLAN), redGeneve, blue(redGeneve)}
	for i, s := range segments {
		svc := manyBackends(vip4, len(segments))
		svc.Segment, svc.Backends = s, svc.Backends[i:i+1]
		update(t, p, svc)
	}
	all := manyBackends(vip4, len(segments)).Backends
	for i, s := range segments {
		vip := web4
		vip.Segment = s
		if got, _ := chosen(t, p, vip, client4, all); got != all[i].ID() {
			t.Errorf("%s: went to %s, want %s", vip, got, all[i].ID())
		}
	}
}

// mark sets the congestion mark of an IP header, and keeps the rest of its type of service.
func mark(layer gopacket.SerializableLayer, ecn uint8) {
	switch ip := layer.(type) {
	case *layers.IPv4:
		ip.TOS = ip.TOS&^3 | ecn
	case *layers.IPv6:
		ip.TrafficClass = ip.TrafficClass&^3 | ecn
	}
}

// ecnCase is a packet within another one, both with congestion marks.
type ecnCase struct {
	outer, within uint8
	want          int // a negative one drops the packet
}

// ecnCases returns the cases of RFC 6040, figure 4.
func ecnCases() (cases []ecnCase) {
	const none, ect1, ect0, ce = 0, 1, 2, 3
	for outer, wants := range [][4]int{
		none: {none: none, ect1: ect1, ect0: ect0, ce: ce},
		ect1: {none: none, ect1: ect1, ect0: ect1, ce: ce},
		ect0: {none: none, ect1: ect1, ect0: ect0, ce: ce},
		ce:   {none: -1, ect1: ce, ect0: ce, ce: ce},
	} {
		for within, want := range wants {
			cases = append(cases, ecnCase{uint8(outer), uint8(within), want})
		}
	}
	return cases
}

// The congestion marks of the network below a segment reach the packet that leaves, and its
// next tunnel: of a VIP's packet, and of a server's reply. Others stay as they came.
func TestSegmentECN(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, a := range []arrival{{segment: redVXLAN, end: local4}, {segment: redGeneve, end: local6}} {
			for _, forward := range []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE} {
				c := forwardCase{forward, vip, backend4, lb.TCP, a, testIndex}
				svc := c.service()
				update(t, p, svc)
				for _, e := range ecnCases() {
					client := transport(svc.VIP, c.client())
					mark(client[0], e.within)
					in := frame{destination: balancerMAC, source: clientMAC, ip: arriving(a.segment, a.end, client), payload: c.payload()}
					mark(in.ip[0], e.outer)
					wantMarked(t, p, in, e.want, c.marked(uint8(max(e.want, 0))), "forward_"+forward.String())
				}
				remove(t, p, svc.VIP)
			}
		}
		nat, other := natCaseOf(vip, lb.TCP), manyBackends(vip, 1)
		other.Segment = redVXLAN
		update(t, p, other)
		update(t, p, nat.service())
		port := begin(t, p, nat)
		for _, e := range ecnCases() {
			in, want := nat.fromServer(tcpACK, port), nat.atClient(tcpACK)
			mark(in.ip[0], e.within)
			mark(want.ip[0], uint8(max(e.want, 0)))
			in.ip = arriving(redVXLAN, local6, in.ip)
			mark(in.ip[0], e.outer)
			wantMarked(t, p, in, e.want, want.build(), "forward_nat_reply")
		}
		stranger := clientFrame(lb.VIP{Address: vip, Port: 81, Protocol: lb.TCP, Segment: redVXLAN}, clientOf(vip, 41000))
		mark(stranger.ip[0], 3)
		wantExit(t, p, stranger.build(), xdpPass, "pass_not_vip")
		remove(t, p, nat.vip)
		remove(t, p, other.VIP)
	}
}

// wantMarked checks the frame that comes out. It is dropped as congested if the mark is negative.
func wantMarked(t *testing.T, p *xdp.Unattached, in frame, ecn int, want []byte, exit string) {
	t.Helper()
	if ecn < 0 {
		wantVerdict(t, p, in.build(), xdpDrop, "drop_congested")
		return
	}
	wantBytes(t, p, in.build(), want, xdpTX, exit)
}
