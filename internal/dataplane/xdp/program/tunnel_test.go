// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/lb"
)

// enum xdp_action in linux/bpf.h
const (
	xdpDrop = 1
	xdpPass = 2
)

var (
	balancer4 = netip.MustParseAddr("10.0.2.11")
	balancer6 = netip.MustParseAddr("fd00:2::11")
	server4   = netip.MustParseAddr("10.0.2.101")
	server6   = netip.MustParseAddr("fd00:2::101")
	vip4      = netip.MustParseAddr("10.1.1.1")
	vip6      = netip.MustParseAddr("fd00:10:1:1::1")
	stranger  = netip.MustParseAddr("192.0.2.1")
)

// testEnd is a tunnel end that is attached nowhere.
func testEnd(t *testing.T) *TunnelEnd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	spec, err := loadNode()
	must(t, err)
	e := &TunnelEnd{}
	must(t, spec.LoadAndAssign(&e.objects, nil))
	t.Cleanup(func() { must(t, e.Close()) })
	e.counters, err = NewCounters(spec.Types, "node_counter", "NODE_COUNTER_", e.objects.NodeCounters)
	must(t, err)
	cfg := TunnelConfig{
		VIPs:      []lb.VIP{{Address: vip4, Port: 7, Protocol: lb.UDP}, {Address: vip6, Port: 7, Protocol: lb.UDP}},
		Balancers: []netip.Prefix{netip.MustParsePrefix("10.0.2.0/28"), netip.MustParsePrefix("fd00:2::/120")},
		Log:       slog.New(slog.DiscardHandler),
	}
	must(t, e.fill([]netip.Addr{server4, server6}, cfg))
	return e
}

// inner is a client's packet to a VIP.
func inner(vip netip.Addr) []gopacket.SerializableLayer {
	udp := &layers.UDP{SrcPort: 4000, DstPort: 7}
	client := netip.MustParseAddr("203.0.113.9")
	if vip.Is6() {
		client = netip.MustParseAddr("2001:db8::9")
	}
	ip := header(client, vip, layers.IPProtocolUDP)
	_ = udp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)) // only fails for other layers
	return []gopacket.SerializableLayer{ip, udp, gopacket.Payload("longer than the padding of a short frame")}
}

// behind are the headers of a packet behind an outer one.
func behind(from, to netip.Addr, packet []gopacket.SerializableLayer) []gopacket.SerializableLayer {
	protocol := layers.IPProtocolIPv6
	if packet[0].LayerType() == layers.LayerTypeIPv4 {
		protocol = layers.IPProtocolIPv4
	}
	return append([]gopacket.SerializableLayer{header(from, to, protocol)}, packet...)
}

func header(from, to netip.Addr, protocol layers.IPProtocol) gopacket.SerializableLayer {
	if to.Is4() {
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	}
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
}

// build serializes a frame; its Ethertype is the first header's.
func build(t *testing.T, stack ...gopacket.SerializableLayer) []byte {
	t.Helper()
	ethernet := &layers.Ethernet{
		DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv6,
	}
	if stack[0].LayerType() == layers.LayerTypeIPv4 {
		ethernet.EthernetType = layers.EthernetTypeIPv4
	}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	must(t, gopacket.SerializeLayers(buffer, options, append([]gopacket.SerializableLayer{ethernet}, stack...)...))
	return buffer.Bytes()
}

// tunnelled is a client's packet to vip behind an outer header.
func tunnelled(t *testing.T, from, to, vip netip.Addr) []byte {
	t.Helper()
	return build(t, behind(from, to, inner(vip))...)
}

// gue is the same behind a GUE header with these first bytes.
func gue(t *testing.T, from, to, vip netip.Addr, port layers.UDPPort, header4 ...byte) []byte {
	t.Helper()
	outer := header(from, to, layers.IPProtocolUDP)
	udp := &layers.UDP{SrcPort: 50000, DstPort: port}
	_ = udp.SetNetworkLayerForChecksum(outer.(gopacket.NetworkLayer)) // only fails for other layers
	return build(t, append([]gopacket.SerializableLayer{outer, udp, gopacket.Payload(header4)}, inner(vip)...)...)
}

// exitOf runs one frame, and returns the verdict, the frame that comes out, and the counters
// that moved.
func exitOf(t *testing.T, e *TunnelEnd, in []byte) (verdict uint32, out []byte, moved map[string]uint64) {
	t.Helper()
	before, err := e.Counters()
	must(t, err)
	options := &ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64)}
	verdict, err = e.objects.EndTunnel.Run(options)
	must(t, err)
	moved, err = e.Counters()
	must(t, err)
	for name, count := range before {
		if moved[name] -= count; moved[name] == 0 {
			delete(moved, name)
		}
	}
	return verdict, options.DataOut, moved
}

// wantExit runs one frame that the kernel gets.
func wantExit(t *testing.T, e *TunnelEnd, in, want []byte, exit string) {
	t.Helper()
	verdict, out, moved := exitOf(t, e, in)
	if verdict != xdpPass || !bytes.Equal(out, want) {
		t.Errorf("verdict %d, frame\n% x, want\n% x", verdict, out, want)
	}
	if !maps.Equal(moved, map[string]uint64{exit: 1}) {
		t.Errorf("counters %v, want one more %s", moved, exit)
	}
}

// All four combinations of families come out as the client sent them.
func TestDecap(t *testing.T) {
	e := testEnd(t)
	for _, outer := range [][2]netip.Addr{{balancer4, server4}, {balancer6, server6}} {
		for _, vip := range []netip.Addr{vip4, vip6} {
			wantExit(t, e, tunnelled(t, outer[0], outer[1], vip), build(t, inner(vip)...), "decap_ipip")
			protocol := byte(layers.IPProtocolIPv6)
			if vip.Is4() {
				protocol = byte(layers.IPProtocolIPv4)
			}
			wantExit(t, e, gue(t, outer[0], outer[1], vip, 6080, 0, protocol, 0, 0), build(t, inner(vip)...), "decap_gue")
		}
	}
}

// Whatever isn't from a balancer, for this machine and for a VIP of its own,
// stays as it is.
func TestPass(t *testing.T) {
	e := testEnd(t)
	fragment := tunnelled(t, balancer4, server4, vip4)
	fragment[14+6] = 0x20
	for _, c := range []struct {
		exit  string
		frame []byte
	}{
		{"pass_not_tunnel", build(t, inner(vip4)...)},
		{"pass_not_tunnel", build(t, inner(vip6)...)},
		{"pass_not_tunnel", fragment},
		{"pass_not_tunnel", gue(t, balancer4, server4, vip4, 6081, 0, 4, 0, 0)},
		{"pass_not_tunnel", gue(t, balancer4, server4, vip4, 6080, 0x40, 4, 0, 0)}, // version 1
		{"pass_not_tunnel", gue(t, balancer4, server4, vip4, 6080, 0x20, 4, 0, 0)}, // control message
		{"pass_not_tunnel", gue(t, balancer4, server4, vip4, 6080, 1, 4, 0, 0)},    // optional fields
		{"pass_not_tunnel", gue(t, balancer4, server4, vip4, 6080, 0, 4, 0x80, 0)}, // flags
		{"pass_not_tunnel", gue(t, balancer4, server4, vip4, 6080, 0, 6, 0, 0)},    // TCP inside
		{"pass_truncated", gue(t, balancer6, server6, vip4, 6080, 0, 4, 0, 0)[:14+40+8]},
		{"pass_not_vip", gue(t, balancer4, server4, netip.MustParseAddr("10.1.1.2"), 6080, 0, 4, 0, 0)},
		{"pass_not_balancer", gue(t, stranger, server4, vip4, 6080, 0, 4, 0, 0)},
		{"pass_not_local", gue(t, balancer6, netip.MustParseAddr("fd00:2::102"), vip6, 6080, 0, 41, 0, 0)},
		{"pass_not_local", tunnelled(t, balancer4, netip.MustParseAddr("10.0.2.102"), vip4)},
		{"pass_not_vip", tunnelled(t, balancer4, server4, netip.MustParseAddr("10.1.1.2"))},
		{"pass_not_balancer", tunnelled(t, stranger, server4, vip4)},
		{"pass_not_balancer", tunnelled(t, netip.MustParseAddr("10.0.2.16"), server4, vip6)},
		{"pass_not_balancer", tunnelled(t, netip.MustParseAddr("fd00:2::1:11"), server6, vip4)},
	} {
		wantExit(t, e, c.frame, c.frame, c.exit)
	}
}

// Only inner packets for the VIPs' services reach the kernel, and none that
// claims to be from this machine.
func TestInnerPackets(t *testing.T) {
	e := testEnd(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		client, own, other := netip.MustParseAddr("203.0.113.9"), server4, netip.MustParseAddr("127.0.0.1")
		multicast := netip.MustParseAddr("224.0.0.1")
		if vip.Is6() {
			client, own, other = netip.MustParseAddr("2001:db8::9"), server6, netip.IPv6Loopback()
			multicast = netip.MustParseAddr("ff02::1")
		}
		packet := func(from netip.Addr, protocol layers.IPProtocol, port byte) []gopacket.SerializableLayer {
			return []gopacket.SerializableLayer{header(from, vip, protocol), gopacket.Payload{0x0f, 0xa0, 0, port, 39: 0}}
		}
		for name, c := range map[string]struct {
			packet []gopacket.SerializableLayer
			exit   string
		}{
			"a service":          {packet(client, layers.IPProtocolUDP, 7), "decap_ipip"},
			"another port":       {packet(client, layers.IPProtocolUDP, 22), "pass_not_vip"},
			"another protocol":   {packet(client, layers.IPProtocolTCP, 7), "pass_not_vip"},
			"no port":            {packet(client, layers.IPProtocolGRE, 7), "pass_not_vip"},
			"own source":         {packet(own, layers.IPProtocolUDP, 7), "pass_forged"},
			"loopback source":    {packet(other, layers.IPProtocolUDP, 7), "pass_forged"},
			"multicast source":   {packet(multicast, layers.IPProtocolUDP, 7), "pass_forged"},
			"an error":           {errorAbout(vip, 7), "decap_ipip"},
			"an error, other":    {errorAbout(vip, 22), "pass_not_vip"},
			"a later fragment":   {laterFragment(client, vip), "decap_ipip"},
			"another's fragment": {laterFragment(client, client), "pass_not_vip"},
		} {
			t.Run(vip.String()+" "+name, func(t *testing.T) {
				in := build(t, behind(balancer4, server4, c.packet)...)
				want := in
				if c.exit == "decap_ipip" {
					want = build(t, c.packet...)
				}
				wantExit(t, e, in, want, c.exit)
			})
		}
	}
}

// errorAbout is an ICMP error of a router that quotes an answer of a VIP's port.
func errorAbout(vip netip.Addr, port byte) []gopacket.SerializableLayer {
	router, client, kind := stranger, netip.MustParseAddr("203.0.113.9"), []byte{3, 4, 0, 0, 0, 0, 5, 0}
	protocol := layers.IPProtocolICMPv4
	if vip.Is6() {
		router, client, kind = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::9"), []byte{2, 0, 0, 0, 0, 0, 5, 0}
		protocol = layers.IPProtocolICMPv6
	}
	return []gopacket.SerializableLayer{
		header(router, vip, protocol), gopacket.Payload(kind), header(vip, client, layers.IPProtocolUDP),
		gopacket.Payload{0, port, 0x0f, 0xa0, 0, 8, 0, 0},
	}
}

// laterFragment has no ports.
func laterFragment(from, to netip.Addr) []gopacket.SerializableLayer {
	rest := gopacket.Payload(make([]byte, 40))
	if to.Is4() {
		ip := header(from, to, layers.IPProtocolUDP).(*layers.IPv4)
		ip.Id, ip.FragOffset = 9, 100
		return []gopacket.SerializableLayer{ip, rest}
	}
	return []gopacket.SerializableLayer{
		header(from, to, layers.IPProtocolIPv6Fragment), gopacket.Payload{17, 0, 0x03, 0x20, 0, 0, 0, 9}, rest,
	}
}

func TestAttachRefuses(t *testing.T) {
	for _, cfg := range []TunnelConfig{
		{Interface: "lo", Balancers: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		{Interface: "lo", VIPs: []lb.VIP{{Address: vip4, Port: 7, Protocol: lb.UDP}}},
	} {
		if e, err := EndTunnels(cfg); err == nil {
			t.Errorf("%+v: attached", cfg)
			_ = e.Close()
		}
	}
}

// withECN is a client's packet to vip, marked so, behind an outer header with another mark.
func withECN(t *testing.T, from, to, vip netip.Addr, outer, within uint8) (in, bare []byte) {
	t.Helper()
	mark := func(layer gopacket.SerializableLayer, ecn uint8) {
		switch ip := layer.(type) {
		case *layers.IPv4:
			ip.TOS = 0xb8 | ecn
		case *layers.IPv6:
			ip.TrafficClass = 0xb8 | ecn
		}
	}
	packet := behind(from, to, inner(vip))
	mark(packet[0], outer)
	mark(packet[1], within)
	return build(t, packet...), build(t, packet[1:]...)
}

// The congestion marks of routers reach the client's packet as RFC 6040, figure 4, has it.
func TestTunnelECN(t *testing.T) {
	const none, ect1, ect0, ce = 0, 1, 2, 3
	e := testEnd(t)
	for _, c := range []struct{ outer, within, want uint8 }{
		{none, none, none}, {none, ect0, ect0}, {none, ect1, ect1}, {none, ce, ce},
		{ect0, none, none}, {ect0, ect0, ect0}, {ect0, ect1, ect1}, {ect0, ce, ce},
		{ect1, none, none}, {ect1, ect0, ect1}, {ect1, ect1, ect1}, {ect1, ce, ce},
		{ce, ect0, ce}, {ce, ect1, ce}, {ce, ce, ce},
	} {
		for _, vip := range []netip.Addr{vip4, vip6} {
			for _, ends := range [][2]netip.Addr{{balancer4, server4}, {balancer6, server6}} {
				in, _ := withECN(t, ends[0], ends[1], vip, c.outer, c.within)
				_, want := withECN(t, ends[0], ends[1], vip, c.outer, c.want)
				wantExit(t, e, in, want, "decap_ipip")
			}
		}
	}
	for _, vip := range []netip.Addr{vip4, vip6} {
		in, _ := withECN(t, balancer4, server4, vip, ce, none)
		verdict, _, moved := exitOf(t, e, in)
		if verdict != xdpDrop || !maps.Equal(moved, map[string]uint64{"drop_congested": 1}) {
			t.Errorf("%s: a mark for a sender that doesn't understand it: verdict %d, counters %v", vip, verdict, moved)
		}
	}
}
