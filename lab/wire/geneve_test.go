// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

const segment = 0x102030

var (
	server4 = netip.MustParseAddr("10.0.2.101")
	server6 = netip.MustParseAddr("fd00:2::101")
)

// testPort is the program of an end in the segment, attached nowhere.
func testPort(t *testing.T) *ebpf.Program {
	t.Helper()
	needRoot(t)
	program, err := loadGeneve(segment, []netip.Addr{server4, server6})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := program.Close(); err != nil {
			t.Error(err)
		}
	})
	return program
}

// inside is the frame that the segment carries.
func inside(t *testing.T) []byte {
	return build(t,
		&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 1, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 1, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4},
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{10, 0, 1, 2}, DstIP: net.IP{10, 1, 1, 1}},
		gopacket.Payload("a client's packet"))
}

// carried is the frame inside another one to a tunnel end point.
func carried(t *testing.T, to netip.Addr, geneve layers.Geneve) []byte {
	t.Helper()
	ethernet := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}}
	udp := &layers.UDP{SrcPort: 50000, DstPort: 6081}
	stack := []gopacket.SerializableLayer{ethernet, nil, udp, &geneve, gopacket.Payload(inside(t))}
	if to.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{10, 0, 2, 11}, DstIP: to.AsSlice()}
		_ = udp.SetNetworkLayerForChecksum(ip) // only fails for other layers
		ethernet.EthernetType, stack[1] = layers.EthernetTypeIPv4, ip
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: net.ParseIP("fd00:2::11"), DstIP: to.AsSlice()}
		_ = udp.SetNetworkLayerForChecksum(ip) // only fails for other layers
		ethernet.EthernetType, stack[1] = layers.EthernetTypeIPv6, ip
	}
	return build(t, stack...)
}

func build(t *testing.T, stack ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// wantFrame runs a frame through the program: it passes as the wanted frame.
func wantFrame(t *testing.T, port *ebpf.Program, what string, in, want []byte) {
	t.Helper()
	options := &ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64)}
	verdict, err := port.Run(options)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if verdict != xdpPass || !bytes.Equal(options.DataOut, want) {
		t.Errorf("%s: verdict %d, frame\n% x, want\n% x", what, verdict, options.DataOut, want)
	}
}

// header is the segment's, of a frame.
func header(options ...*layers.GeneveOption) layers.Geneve {
	return layers.Geneve{Protocol: layers.EthernetTypeTransparentEthernetBridging, VNI: segment, Options: options}
}

// Frames of the segment are opened, whatever options are in front.
func TestGeneveOpens(t *testing.T) {
	port := testPort(t)
	option := &layers.GeneveOption{Class: 0x0102, Type: 7, Data: make([]byte, 8)}
	for _, to := range []netip.Addr{server4, server6} {
		wantFrame(t, port, to.String(), carried(t, to, header()), inside(t))
		wantFrame(t, port, to.String()+" with options", carried(t, to, header(option, option)), inside(t))
	}
}

// Whatever isn't of the segment and for this end stays as it is.
func TestGenevePassesTheRest(t *testing.T) {
	port := testPort(t)
	const ip, udp, geneve, end = 14, 34, 42, 50 // offsets with IPv4
	good := carried(t, server4, header())
	with := func(at int, value byte) []byte {
		spoilt := bytes.Clone(good)
		spoilt[at] = value
		return spoilt
	}
	for what, frame := range map[string][]byte{
		"no tunnel":                   inside(t),
		"another host, ipv4":          carried(t, netip.MustParseAddr("10.0.2.102"), header()),
		"another host, ipv6":          carried(t, netip.MustParseAddr("fd00:2::102"), header()),
		"another segment":             with(geneve+6, 0x31),
		"another port":                with(udp+3, 0xc0),
		"another protocol":            with(ip+9, 6),
		"ip options":                  with(ip, 0x46),
		"fragment":                    with(ip+6, 0x20),
		"another version":             with(geneve, 0x40),
		"control packet":              with(geneve+1, 0x80),
		"critical options":            with(geneve+1, 0x40),
		"ip inside":                   with(geneve+2, 0x08),
		"options beyond the frame":    with(geneve, 0x3f),
		"ends within Geneve":          good[:end-1],
		"ends within the inner frame": good[:end+13],
	} {
		wantFrame(t, port, what, frame, frame)
	}
}

func TestGeneveRefuses(t *testing.T) {
	for _, c := range []struct {
		id   uint32
		ends []netip.Addr
	}{
		{0, []netip.Addr{server4}},
		{1 << 24, []netip.Addr{server4}},
		{1, nil},
		{1, []netip.Addr{server4, server4, server6}},
	} {
		if err := AttachGeneve(1, c.id, c.ends); err == nil {
			t.Errorf("%+v: attached", c)
		}
	}
}
