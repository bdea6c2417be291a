// SPDX-License-Identifier: Apache-2.0

// Package frame builds Ethernet frames for "fairlead trace", from a description or from
// capture files. The trace command sends them to the agent, which runs them through the
// data plane.
package frame

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Protocol is the transport protocol of a described packet.
type Protocol string

// The protocols; ICMP is an echo request, of version 6 between IPv6 addresses.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	ICMP Protocol = "icmp"
)

// Description is a packet in a few words.
type Description struct {
	// From and To are of one family. ICMP takes no notice of the ports.
	From, To netip.AddrPort
	Protocol Protocol
	// Flags of TCP.
	Flags Flags
	// Size is the length of the IP packet in bytes, header included; 0 is the
	// shortest.
	Size int
	// VLAN is the 802.1Q id; 0 is untagged.
	VLAN uint16
	TTL  uint8
}

// Addresses of the link layer. The receiver is the node that traces the frame
// (dataplane.Packet).
var (
	sender   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	receiver = net.HardwareAddr{0, 0, 0, 0, 0, 0}
)

// Build returns the frame, with lengths and checksums filled in. It has at least
// 60 bytes, as on the wire.
func (d Description) Build() ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	packet := d.packet()
	if d.Size > 0 {
		headers, err := serialize(packet)
		if err != nil {
			return nil, err
		}
		if d.Size < len(headers) {
			return nil, fmt.Errorf("size %d: the headers alone are %d bytes", d.Size, len(headers))
		}
		packet = append(packet, gopacket.Payload(make([]byte, d.Size-len(headers))))
	}
	return serialize(append(d.link(), packet...))
}

func (d Description) check() error {
	switch {
	case !d.From.Addr().IsValid() || !d.To.Addr().IsValid():
		return errors.New("a packet goes from an address to an address")
	case d.From.Addr().Is4() != d.To.Addr().Is4():
		return fmt.Errorf("from %s to %s: the families differ", d.From.Addr(), d.To.Addr())
	case d.Protocol != ICMP && (d.From.Port() == 0 || d.To.Port() == 0):
		return fmt.Errorf("from %s to %s: %s needs ports", d.From, d.To, d.Protocol)
	case d.Size < 0 || d.Size > 0xffff:
		return fmt.Errorf("size %d: want at most 65535 bytes", d.Size)
	case d.VLAN > 4094:
		return fmt.Errorf("vlan %d: want at most 4094", d.VLAN)
	}
	return nil
}

// link is the Ethernet header with a tag, if there is to be one.
func (d Description) link() []gopacket.SerializableLayer {
	kind := layers.EthernetTypeIPv6
	if d.To.Addr().Is4() {
		kind = layers.EthernetTypeIPv4
	}
	ethernet := &layers.Ethernet{SrcMAC: sender, DstMAC: receiver, EthernetType: kind}
	if d.VLAN == 0 {
		return []gopacket.SerializableLayer{ethernet}
	}
	ethernet.EthernetType = layers.EthernetTypeDot1Q
	return []gopacket.SerializableLayer{ethernet, &layers.Dot1Q{VLANIdentifier: d.VLAN, Type: kind}}
}

// packet returns the IP header and its payload.
func (d Description) packet() []gopacket.SerializableLayer {
	from, to, ttl := d.From.Addr().AsSlice(), d.To.Addr().AsSlice(), cmp.Or(d.TTL, 64)
	if d.To.Addr().Is4() {
		protocol := map[Protocol]layers.IPProtocol{TCP: layers.IPProtocolTCP, UDP: layers.IPProtocolUDP, ICMP: layers.IPProtocolICMPv4}
		ip := &layers.IPv4{Version: 4, TTL: ttl, Flags: layers.IPv4DontFragment, Protocol: protocol[d.Protocol], SrcIP: from, DstIP: to}
		echo := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 1, Seq: 1}
		return append([]gopacket.SerializableLayer{ip}, d.transport(ip, echo)...)
	}
	protocol := map[Protocol]layers.IPProtocol{TCP: layers.IPProtocolTCP, UDP: layers.IPProtocolUDP, ICMP: layers.IPProtocolICMPv6}
	ip := &layers.IPv6{Version: 6, HopLimit: ttl, NextHeader: protocol[d.Protocol], SrcIP: from, DstIP: to}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0)}
	_ = icmp.SetNetworkLayerForChecksum(ip) // fails only for layers other than IP
	return append([]gopacket.SerializableLayer{ip}, d.transport(ip, icmp, &layers.ICMPv6Echo{Identifier: 1, SeqNumber: 1})...)
}

func (d Description) transport(ip gopacket.NetworkLayer, echo ...gopacket.SerializableLayer) []gopacket.SerializableLayer {
	switch d.Protocol {
	case TCP:
		tcp := d.Flags.header()
		tcp.SrcPort, tcp.DstPort = layers.TCPPort(d.From.Port()), layers.TCPPort(d.To.Port())
		_ = tcp.SetNetworkLayerForChecksum(ip)
		return []gopacket.SerializableLayer{tcp}
	case UDP:
		udp := &layers.UDP{SrcPort: layers.UDPPort(d.From.Port()), DstPort: layers.UDPPort(d.To.Port())}
		_ = udp.SetNetworkLayerForChecksum(ip)
		return []gopacket.SerializableLayer{udp}
	default:
		return echo
	}
}

func serialize(stack []gopacket.SerializableLayer) ([]byte, error) {
	buffer := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...)
	return buffer.Bytes(), err
}

// Summary describes a frame in a line, for example
// "tcp 192.0.2.7:41000 > 10.1.1.1:80 syn, 60 bytes". It takes any bytes.
func Summary(frame []byte) string {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	var said []string
	if tag, ok := packet.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); ok {
		said = append(said, fmt.Sprintf("vlan %d", tag.VLANIdentifier))
	}
	said = append(said, content(packet))
	return fmt.Sprintf("%s, %d bytes", strings.Join(said, " "), len(frame))
}

// content names the packet behind the link layer.
func content(packet gopacket.Packet) string {
	network := packet.NetworkLayer()
	if network == nil {
		names := []string{}
		for _, layer := range packet.Layers() {
			names = append(names, layer.LayerType().String())
		}
		return strings.Join(names, "/")
	}
	flow := network.NetworkFlow()
	if t := packet.TransportLayer(); t != nil {
		ports := t.TransportFlow()
		text := fmt.Sprintf("%s %s > %s", strings.ToLower(t.LayerType().String()),
			net.JoinHostPort(flow.Src().String(), ports.Src().String()), net.JoinHostPort(flow.Dst().String(), ports.Dst().String()))
		if tcp, ok := t.(*layers.TCP); ok {
			text += " " + flagsOf(tcp).String()
		}
		return strings.TrimSpace(text)
	}
	kind := network.LayerType()
	if all := packet.Layers(); len(all) > 0 {
		kind = all[len(all)-1].LayerType()
	}
	return fmt.Sprintf("%s %s > %s", kind, flow.Src(), flow.Dst())
}
