// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
)

const (
	ethernetHeader = 14
	// maxGrowth is more than any encapsulation adds to a frame, in bytes.
	maxGrowth = 256
)

// Verdicts of an XDP program (enum xdp_action in linux/bpf.h).
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)

// verdicts are their names in a dataplane.Trace.
var verdicts = map[uint32]string{xdpDrop: "drop", xdpPass: "pass", xdpTX: "transmit", xdpRedirect: "redirect"}

// frame describes an Ethernet frame; build turns it into bytes. The zero value
// of a field leaves its layer out or at its default.
type frame struct {
	destination, source lb.MAC
	tags                []uint16 // VLAN tags, outermost first: priority, drop eligible, id
	ip                  []gopacket.SerializableLayer
	payload             string
}

var (
	clientMAC   = lb.MAC{2, 0, 0, 0, 0, 0xc}
	balancerMAC = lb.MAC{2, 0, 0, 0, 0, 0xb}
)

// build serializes the frame with lengths and checksums filled in.
func (f frame) build() []byte {
	ethernet := &layers.Ethernet{DstMAC: net.HardwareAddr(f.destination[:]), SrcMAC: net.HardwareAddr(f.source[:])}
	stack := []gopacket.SerializableLayer{ethernet}
	next := &ethernet.EthernetType
	for _, tci := range f.tags {
		*next = layers.EthernetTypeDot1Q
		tag := &layers.Dot1Q{Priority: uint8(tci >> 13), DropEligible: tci>>12&1 == 1, VLANIdentifier: tci & 0xfff}
		stack = append(stack, tag)
		next = &tag.Type
	}
	*next = ethertype(f.ip)
	stack = append(append(stack, f.ip...), gopacket.Payload(f.payload))
	return serialize(stack...)
}

func serialize(stack ...gopacket.SerializableLayer) []byte {
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, stack...); err != nil {
		panic(err) // a test's own mistake
	}
	return buffer.Bytes()
}

// ipLayer is a header that suits the addresses, with tos 0x28 to see it copied.
func ipLayer(source, destination netip.Addr, protocol layers.IPProtocol) gopacket.SerializableLayer {
	if destination.Is4() {
		return &layers.IPv4{Version: 4, TTL: 60, Id: 7, TOS: 0x28, Protocol: protocol,
			SrcIP: source.AsSlice(), DstIP: destination.AsSlice()}
	}
	return &layers.IPv6{Version: 6, HopLimit: 60, TrafficClass: 0x28, NextHeader: protocol,
		SrcIP: source.AsSlice(), DstIP: destination.AsSlice()}
}

// transport is the IP and transport header of a packet from client to vip.
func transport(vip lb.VIP, client netip.AddrPort) []gopacket.SerializableLayer {
	ip := ipLayer(client.Addr(), vip.Address, layers.IPProtocol(vip.Protocol))
	network := ip.(gopacket.NetworkLayer)
	if vip.Protocol == lb.UDP {
		udp := &layers.UDP{SrcPort: layers.UDPPort(client.Port()), DstPort: layers.UDPPort(vip.Port)}
		_ = udp.SetNetworkLayerForChecksum(network) // only fails for other layers
		return []gopacket.SerializableLayer{ip, udp}
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(client.Port()), DstPort: layers.TCPPort(vip.Port), SYN: true, Window: 512}
	_ = tcp.SetNetworkLayerForChecksum(network)
	return []gopacket.SerializableLayer{ip, tcp}
}

// clientFrame is a packet from client to vip as the router sends it.
func clientFrame(vip lb.VIP, client netip.AddrPort) frame {
	f := frame{destination: balancerMAC, source: clientMAC, ip: transport(vip, client), payload: "longer than the padding of a short frame"}
	switch {
	case vip.Segment.Overlay():
		f.ip = arriving(vip.Segment, local4, f.ip)
	case vip.Segment.Tagged():
		f.tags = []uint16{5<<13 | uint16(vip.Segment.ID)}
	}
	return f
}

func flowPacket(vip lb.VIP, client netip.AddrPort) []byte { return clientFrame(vip, client).build() }

// run puts one frame into the program and returns its verdict and the frame
// that came out.
func run(t *testing.T, p *xdp.Unattached, in []byte) (verdict uint32, out []byte) {
	t.Helper()
	verdict, out, err := testRun(programOf(t, p), in)
	if err != nil {
		t.Fatalf("run %d bytes: %v", len(in), err)
	}
	return verdict, out
}

func testRun(program *ebpf.Program, in []byte) (verdict uint32, out []byte, err error) {
	options := &ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+maxGrowth)}
	verdict, err = program.Run(options)
	return verdict, options.DataOut, err
}

// exits returns the counters that moved while do ran.
func exits(t *testing.T, p *xdp.Unattached, do func()) map[string]uint64 {
	t.Helper()
	before, err := p.Programs.Exits()
	must(t, err)
	do()
	after, err := p.Programs.Exits()
	must(t, err)
	for name, count := range before {
		if after[name] -= count; after[name] == 0 {
			delete(after, name)
		}
	}
	return after
}

// BenchmarkPacket measures the program alone, in the kernel: one l2dsr service
// with 255 backends, one flow. L2 DSR leaves a packet that is balanced again,
// so it needn't be rebuilt between runs.
func BenchmarkPacket(b *testing.B) {
	for _, c := range []struct {
		name string
		svc  *lb.Service
		in   []byte
	}{
		{"ipv4", manyBackends(vip4, 255), flowPacket(web4, client4)},
		{"ipv6", manyBackends(vip6, 255), flowPacket(web6, client6)},
		{"not a vip", manyBackends(vip4, 255), flowPacket(web6, client6)},
		{"not ip", manyBackends(vip4, 255), withType(layers.EthernetTypeARP)},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := openTestPlane(b, testPins(b), newStaticHops())
			_, err := p.Update(b.Context(), c.svc)
			must(b, err)
			program, err := p.Program()
			must(b, err)
			const repeat = 1 << 20
			for b.Loop() {
				_, perPacket, err := program.Benchmark(c.in, repeat, nil)
				must(b, err)
				b.ReportMetric(float64(perPacket.Nanoseconds()), "ns/packet")
			}
		})
	}
}
