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

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	builder "fairlead.io/fairlead/internal/frame"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

// selfTestHop is how every backend of a self-test is reached: index 1 is the
// interface that test runs pretend packets came from.
var selfTestHop = nexthop.Hop{Interface: "lo", Index: nexthop.Loopback, Source: lb.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500}

// selfTestEnd is where frames of segments arrive.
var selfTestEnd = netip.MustParseAddr("198.51.100.2")

// selfTestPeer is where they come from.
var selfTestPeer = netip.MustParsePrefix("198.51.100.3/32")

// selfTestCapacity suffices for the services of a self-test.
var selfTestCapacity = table.Capacity{Services: 128, Backends: 256, RingEntries: 1 << 14, Flows: 256, Sources: 64, Limited: 64, Clients: 64, Sessions: 256}

// selfTest is the test of programs before they are used.
func (c *Config) selfTest() func(program.Features) error {
	if c.test != nil {
		return c.test
	}
	return func(f program.Features) error { return selfTest(f, c.Seed) }
}

// Try tests the program with all features on this kernel; QUIC, which needs a newer one than the
// others, only if quic is set.
func Try(quic bool) error {
	f := program.AllFeatures
	if !quic {
		f &^= program.FeatureQUIC
	}
	return selfTest(f, 1)
}

// selfTest balances a built-in set of packets by a program with these features
// and the given seed, on tables of its own: every mode that it has, both
// families, and a packet of no service. The
// error is the first wrong verdict; such a program must not be attached.
func selfTest(f program.Features, seed uint64) (err error) {
	p, err := newPlane(Config{
		Capacity: selfTestCapacity, TunnelEnds: []netip.Addr{selfTestEnd}, TunnelPeers: []netip.Prefix{selfTestPeer}, Seed: seed, Log: slog.New(slog.DiscardHandler),
	}, fixedHops{})
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	program, err := p.programs.Load(f)
	if err != nil {
		return err
	}
	cases := slices.DeleteFunc(selfTestCases(), func(c selfTestCase) bool { return propertiesOf(c.svc).needs()&^f != 0 })
	for _, c := range cases { // before any of them has an address
		if err := testWithoutService(program, c.svc.VIP); err != nil {
			return fmt.Errorf("self-test: %s: %w", c.svc.VIP, err)
		}
	}
	for _, c := range cases {
		if err := testService(p, program, c); err != nil {
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

// testWithoutService checks that a packet to an address without a service is passed.
func testWithoutService(program *ebpf.Program, vip lb.VIP) error {
	in, _, err := selfTestFrame(vip)
	if err != nil {
		return err
	}
	if verdict, out, err := testRun(program, in); err != nil || verdict != xdpPass || !bytes.Equal(in, out) {
		return errors.Join(err, fmt.Errorf("without a service: verdict %d, frame % x", verdict, out))
	}
	return nil
}

// testService sends packets to a service and checks the verdicts.
func testService(p *Plane, program *ebpf.Program, c selfTestCase) error {
	in, packet, err := selfTestFrame(c.svc.VIP)
	if err != nil {
		return err
	}
	if _, err := p.Update(context.Background(), c.svc); err != nil {
		return err
	}
	for _, exit := range c.exits {
		if err := testPacket(p, program, in, packet, exit, c.svc.Backends[0].Address); err != nil {
			return err
		}
	}
	return nil
}

// testPacket checks that a frame takes an exit; if that is to a backend, with
// the client's packet as it was.
func testPacket(p *Plane, program *ebpf.Program, in, packet []byte, exit string, backend netip.Addr) error {
	before, err := p.programs.Exits()
	if err != nil {
		return err
	}
	verdict, out, err := testRun(program, in)
	if err != nil {
		return err
	}
	after, err := p.programs.Exits()
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
	case lb.MAC(out[:6]) != selfTestMAC(backend):
		return fmt.Errorf("frame % x", out)
	case exit == exitNAT:
		return testTranslated(program, in, out)
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
		relayed := selfTestService(lb.DSR, vip, backend, lb.SegmentUnset)
		relayed.Backends[0].Node = netip.MustParseAddr("198.51.100.2")
		translated := selfTestService(lb.DSR, vip, backend, lb.SegmentUnset)
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
func selfTestFrame(vip lb.VIP) (in, packet []byte, err error) {
	client := netip.MustParseAddrPort("203.0.113.1:40000")
	if vip.Address.Is6() {
		client = netip.MustParseAddrPort("[2001:db8:2::1]:40000")
	}
	described := builder.Description{From: client, To: netip.AddrPortFrom(vip.Address, vip.Port), Protocol: builder.TCP, Flags: builder.SYN}
	if in, err = described.Build(); err != nil {
		return nil, nil, err
	}
	copy(in, selfTestHop.Source[:])
	packet = in[14:]
	if vip.Segment.Overlay() {
		buffer := gopacket.NewSerializeBuffer()
		options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
		err = gopacket.SerializeLayers(buffer, options, append(selfTestOverlay(vip.Segment), gopacket.Payload(in))...)
		in = buffer.Bytes()
	}
	return in, packet, err
}

// selfTestOverlay returns the headers in front of a segment's frame.
func selfTestOverlay(s lb.Segment) []gopacket.SerializableLayer {
	ip := &layers.IPv4{
		Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: selfTestPeer.Addr().AsSlice(), DstIP: selfTestEnd.AsSlice(),
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

// fixedHops reaches every backend in the same way, but each under a MAC address of
// its own.
type fixedHops struct{}

func (fixedHops) Follow(_ lb.VIP, targets []nexthop.Target) []nexthop.Result {
	results := make([]nexthop.Result, len(targets))
	for i, t := range targets {
		hop := selfTestHop
		hop.Destination, hop.Relay = selfTestMAC(t.Address), t.Relay.IsValid()
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

// selfTestMAC is the MAC address of a backend.
func selfTestMAC(backend netip.Addr) lb.MAC {
	a := backend.As16()
	return lb.MAC{2, 1, a[12], a[13], a[14], a[15]}
}

func (fixedHops) Forget(lb.VIP)               {}
func (fixedHops) Ports(int) []nexthop.Port    { return nil }
func (fixedHops) Notify(func(lb.VIP))         {}
func (fixedHops) Interfaces() <-chan struct{} { return nil }
func (fixedHops) Close() error                { return nil }

// The exits to backends of services whose packets are translated.
const (
	exitNAT   = "forward_nat"
	exitRelay = "forward_relay"
)

// testRelayed checks a client's frame on its way to another node: nothing but its
// link layer and the hop limit differ.
func testRelayed(in, out []byte) error {
	want, err := rebuilt(in, 63, false)
	if err == nil && !bytes.Equal(out[12:], want[12:]) {
		err = fmt.Errorf("frame % x, want % x behind its addresses", out, want)
	}
	return err
}

// testTranslated checks a client's frame as NAT has made it: its checksums, and that
// the server's answer comes back to the client as from the VIP.
func testTranslated(program *ebpf.Program, in, out []byte) error {
	sound, err := rebuilt(out, 63, false)
	if err != nil {
		return err
	}
	if !bytes.Equal(sound, out) {
		return fmt.Errorf("frame % x, want % x", out, sound)
	}
	answer, err := rebuilt(out, 64, true)
	if err != nil {
		return err
	}
	want, err := rebuilt(in, 63, true)
	if err != nil {
		return err
	}
	verdict, back, err := testRun(program, answer)
	if err == nil && (verdict != xdpTX || !bytes.Equal(back, want)) {
		err = fmt.Errorf("answer: verdict %d, frame % x, want % x", verdict, back, want)
	}
	return err
}

// rebuilt is an untagged TCP frame with that TTL or hop limit, and its checksums
// recomputed; if it is turned, as its receiver would send it back.
func rebuilt(frame []byte, hops uint8, turned bool) ([]byte, error) {
	decoded := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if failed := decoded.ErrorLayer(); failed != nil {
		return nil, failed.Error()
	}
	var stack []gopacket.SerializableLayer
	for _, layer := range decoded.Layers() {
		if turned {
			turnLayer(layer)
		}
		switch l := layer.(type) {
		case *layers.IPv4:
			l.TTL = hops
		case *layers.IPv6:
			l.HopLimit = hops
		case *layers.TCP:
			if err := l.SetNetworkLayerForChecksum(decoded.NetworkLayer()); err != nil {
				return nil, err
			}
		}
		if l, ok := layer.(gopacket.SerializableLayer); ok {
			stack = append(stack, l)
		}
	}
	buffer := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{ComputeChecksums: true}, stack...)
	return buffer.Bytes(), err
}

// turnLayer exchanges source and destination.
func turnLayer(layer gopacket.Layer) {
	switch l := layer.(type) {
	case *layers.Ethernet:
		l.SrcMAC, l.DstMAC = l.DstMAC, l.SrcMAC
	case *layers.IPv4:
		l.SrcIP, l.DstIP = l.DstIP, l.SrcIP
	case *layers.IPv6:
		l.SrcIP, l.DstIP = l.DstIP, l.SrcIP
	case *layers.TCP:
		l.SrcPort, l.DstPort = l.DstPort, l.SrcPort
	}
}
