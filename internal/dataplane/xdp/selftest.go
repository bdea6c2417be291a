// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
	"fairlead.io/fairlead/internal/lb"
)

// selfTestHop is how every backend of a self-test is reached: index 1 is the
// interface that test runs pretend packets came from.
var selfTestHop = nexthop.Hop{
	Index: 1, Source: lb.MAC{2, 0, 0, 0, 0, 1}, Destination: lb.MAC{2, 0, 0, 0, 0, 2}, MTU: 1500,
}

// selfTestEnd is where frames of segments arrive.
var selfTestEnd = netip.MustParseAddr("198.51.100.2")

// selfTestCapacity suffices for the services of a self-test.
var selfTestCapacity = Capacity{Services: 128, Backends: 256, RingEntries: 1 << 14, Flows: 256, Sources: 64, Limited: 64, Clients: 64, Sessions: 256}

// selfTest balances a built-in set of packets by a program with these features
// and the given seed, on tables of its own: every mode that it has, both
// families, and a packet that is none of its business (DESIGN.md §5.4). The
// error says which verdict was wrong; such a program must not be attached.
func selfTest(f features, seed uint64) (err error) {
	p, err := newPlane(Config{
		Capacity: selfTestCapacity, TunnelEnds: []netip.Addr{selfTestEnd}, Seed: seed, Log: slog.New(slog.DiscardHandler),
	}, fixedHops{})
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if p.kernel.program, err = p.kernel.compile(f); err != nil {
		return err
	}
	p.kernel.features = f
	for _, c := range selfTestCases() {
		if featuresOf(c.svc)&^f != 0 {
			continue
		}
		if err := p.testService(c); err != nil {
			return fmt.Errorf("self-test: %s to %s: %w", c.svc.VIP, c.svc.Backends[0].Address, err)
		}
	}
	return nil
}

// selfTestCase is a service, and the exits that packets to it take, one after
// the other.
type selfTestCase struct {
	svc   *lb.Service
	exits []string
}

// testService sends packets to a service and checks what becomes of them, and of
// the same packet when there is no such service.
func (p *Plane) testService(c selfTestCase) error {
	in, packet, err := selfTestFrame(c.svc.VIP)
	if err != nil {
		return err
	}
	if verdict, out, err := testRun(p.kernel.program, in); err != nil || verdict != xdpPass || !bytes.Equal(in, out) {
		return errors.Join(err, fmt.Errorf("without a service: verdict %d, frame % x", verdict, out))
	}
	if _, err := p.Update(context.Background(), c.svc); err != nil {
		return err
	}
	for _, exit := range c.exits {
		if err := p.testPacket(in, packet, exit); err != nil {
			return err
		}
	}
	return nil
}

// testPacket checks that a frame takes an exit; if that is to a backend, with
// the client's packet as it was.
func (p *Plane) testPacket(in, packet []byte, exit string) error {
	before, err := p.kernel.exits.Read()
	if err != nil {
		return err
	}
	verdict, out, err := testRun(p.kernel.program, in)
	if err != nil {
		return err
	}
	after, err := p.kernel.exits.Read()
	if err != nil {
		return err
	}
	want := uint32(xdpDrop)
	if strings.HasPrefix(exit, "forward_") {
		want = xdpTX
	}
	switch {
	case verdict != want:
		return fmt.Errorf("verdict %d, want %d", verdict, want)
	case after[exit] != before[exit]+1:
		return fmt.Errorf("counter %s moved by %d", exit, after[exit]-before[exit])
	case want != xdpTX:
		return nil
	case !bytes.HasPrefix(out, selfTestHop.Destination[:]):
		return fmt.Errorf("frame % x", out)
	case exit == exitNAT:
		return p.testSession(in, out)
	case exit == exitRelay:
		return testRelayed(in, out)
	case !bytes.HasSuffix(out, packet):
		return fmt.Errorf("frame % x", out)
	}
	return nil
}

// apart gives each case's VIP a port of its own: a service that is deleted makes
// the next one wait for a grace period.
func apart(cases []selfTestCase) []selfTestCase {
	for i, c := range cases {
		svc := *c.svc
		svc.Port += uint16(i)
		svc.Backends = slices.Clone(svc.Backends)
		svc.Backends[0].Port = svc.Port
		cases[i].svc = &svc
	}
	return cases
}

// selfTestCases has every way through the program: each mode, clients that are
// denied, flows that are too many and clients that are remembered.
func selfTestCases() []selfTestCase {
	var cases []selfTestCase
	for _, svc := range selfTestServices() {
		cases = append(cases, selfTestCase{svc, []string{selfTestExit(svc)}})
	}
	denied, limited, remembered := *cases[0].svc, *cases[0].svc, *cases[0].svc
	denied.Sources.Deny = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
	limited.Limits.NewFlows = 1
	remembered.Affinity, remembered.AffinityTimeout = lb.AffinityClient, time.Hour
	return apart(append(cases,
		selfTestCase{&denied, []string{"drop_source_denied"}},
		selfTestCase{&limited, []string{cases[0].exits[0], "drop_service_limit"}},
		selfTestCase{&remembered, []string{cases[0].exits[0], cases[0].exits[0]}}))
}

// selfTestServices has a service for every mode, family and segment.
func selfTestServices() []*lb.Service {
	addresses := []string{"192.0.2.1", "2001:db8::1"} // RFC 5737, RFC 3849
	var services []*lb.Service
	for _, forward := range Limits().Forwards {
		for _, vip := range addresses {
			for _, backend := range []string{"198.51.100.1", "2001:db8:1::1"} {
				services = append(services, selfTestService(forward, vip, backend, lb.SegmentUnset))
			}
		}
		for _, segment := range []lb.SegmentType{lb.SegmentVXLAN, lb.SegmentGeneve} {
			services = append(services, selfTestService(forward, addresses[0], "198.51.100.1", segment))
		}
	}
	for i, vip := range addresses {
		backend := []string{"198.51.100.1", "2001:db8:1::1"}[i]
		relayed := selfTestService(lb.DNAT, vip, backend, lb.SegmentUnset)
		relayed.Backends[0].Node = netip.MustParseAddr("198.51.100.2")
		translated := selfTestService(lb.DNAT, vip, backend, lb.SegmentUnset)
		translated.Backends[0].Outside = true
		services = append(services, relayed, translated)
	}
	// NAT translates neither between families nor in segments.
	return slices.DeleteFunc(services, func(svc *lb.Service) bool { return len(svc.Check()) > 0 })
}

// selfTestExit is the way to a service's only backend.
func selfTestExit(svc *lb.Service) string {
	switch {
	case svc.Backends[0].Node.IsValid():
		return exitRelay
	case svc.Forward.Translates():
		return exitNAT
	}
	return "forward_" + svc.Forward.String()
}

// selfTestService has one backend, behind a tunnel end point where the mode
// wants one.
func selfTestService(forward lb.Forward, vip, backend string, arrives lb.SegmentType) *lb.Service {
	b := lb.Backend{Address: netip.MustParseAddr(backend), Port: 9, Weight: 1}
	if overlay := forward.Overlay(); overlay != lb.SegmentUnset {
		b.TunnelEnd, b.MAC, b.Segment = b.Address, lb.MAC{2, 0, 0, 0, 0, 4}, lb.Segment{Type: overlay, ID: 2}
	}
	svc := &lb.Service{
		Name:       "self-test",
		VIP:        lb.VIP{Address: netip.MustParseAddr(vip), Port: 9, Protocol: lb.TCP},
		Forward:    forward,
		MinHealthy: 1,
		Backends:   []lb.Backend{b},
	}
	if arrives != lb.SegmentUnset {
		svc.Segment = lb.Segment{Type: arrives, ID: 1}
	}
	return svc
}

// selfTestFrame is a TCP packet to vip: the frame, and the IP packet in it.
func selfTestFrame(vip lb.VIP) (frame, packet []byte, err error) {
	ethernet := &layers.Ethernet{
		SrcMAC: []byte{2, 0, 0, 0, 0, 3}, DstMAC: selfTestHop.Source[:], EthernetType: layers.EthernetTypeIPv4,
	}
	client := netip.MustParseAddr("203.0.113.1").AsSlice()
	var ip gopacket.SerializableLayer = &layers.IPv4{
		Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: client, DstIP: vip.Address.AsSlice(),
	}
	if vip.Address.Is6() {
		ethernet.EthernetType = layers.EthernetTypeIPv6
		client = netip.MustParseAddr("2001:db8:2::1").AsSlice()
		ip = &layers.IPv6{
			Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: client, DstIP: vip.Address.AsSlice(),
		}
	}
	tcp := &layers.TCP{SrcPort: 40000, DstPort: layers.TCPPort(vip.Port), SYN: true, Window: 512}
	if err := tcp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)); err != nil {
		return nil, nil, err
	}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, ethernet, ip, tcp); err != nil {
		return nil, nil, err
	}
	frame = bytes.Clone(buffer.Bytes())
	packet = frame[14:]
	if vip.Segment.Overlay() {
		err = gopacket.SerializeLayers(buffer, options, append(selfTestOverlay(vip.Segment), gopacket.Payload(frame))...)
		frame = buffer.Bytes()
	}
	return frame, packet, err
}

// selfTestOverlay is what stands in front of a segment's frame.
func selfTestOverlay(s lb.Segment) []gopacket.SerializableLayer {
	ip := &layers.IPv4{
		Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: []byte{198, 51, 100, 3}, DstIP: selfTestEnd.AsSlice(),
	}
	udp := &layers.UDP{SrcPort: 50000, DstPort: 4789}
	_ = udp.SetNetworkLayerForChecksum(ip) // only fails for other layers
	var header gopacket.SerializableLayer = &layers.VXLAN{ValidIDFlag: true, VNI: s.ID}
	if s.Type == lb.SegmentGeneve {
		udp.DstPort = 6081
		header = &layers.Geneve{Protocol: layers.EthernetTypeTransparentEthernetBridging, VNI: s.ID}
	}
	return []gopacket.SerializableLayer{&layers.Ethernet{
		SrcMAC: []byte{2, 0, 0, 0, 0, 3}, DstMAC: selfTestHop.Source[:], EthernetType: layers.EthernetTypeIPv4,
	}, ip, udp, header}
}

// testRun puts a frame into a program and returns its verdict and the frame
// that came out.
func testRun(program *ebpf.Program, in []byte) (verdict uint32, out []byte, err error) {
	options := &ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+256)}
	verdict, err = program.Run(options)
	return verdict, options.DataOut, err
}

// fixedHops reaches every backend in the same way.
type fixedHops struct{}

func (fixedHops) Follow(_ lb.VIP, targets []nexthop.Target) []nexthop.Result {
	results := make([]nexthop.Result, len(targets))
	for i, t := range targets {
		hop := selfTestHop
		hop.Relay = t.Relay.IsValid()
		if !t.OnLink && !hop.Relay {
			hop.Local = selfTestEnd
			if t.Address.Is6() {
				hop.Local = netip.MustParseAddr("2001:db8:1::2")
			}
		}
		results[i].Hop = hop
	}
	return results
}

func (fixedHops) Forget(lb.VIP)            {}
func (fixedHops) Ports(int) []nexthop.Port { return nil }
func (fixedHops) Changed() <-chan lb.VIP   { return nil }
func (fixedHops) Close() error             { return nil }
