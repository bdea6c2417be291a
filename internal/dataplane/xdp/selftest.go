// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	builder "fairlead.io/fairlead/internal/frame"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

// selfTestHop is how every backend of a self-test is reached: index 1 is the
// interface that test runs pretend packets came from.
var selfTestHop = nexthop.Hop{Interface: "lo", Index: nexthop.Loopback, Source: lb.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500}

// selfTestEnd is where tunnels begin.
var selfTestEnd = netip.MustParseAddr("198.51.100.2")

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

// selfTest balances a packet in every mode that a program with these features has, with
// the given seed and on tables of its own. The error is the first wrong verdict; such a program
// must not be attached.
func selfTest(f program.Features, seed uint64) (err error) {
	p, err := newPlane(Config{Capacity: selfTestCapacity, Seed: seed, Log: slog.New(slog.DiscardHandler)}, fixedHops{})
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	program, err := p.programs.Load(f)
	if err != nil {
		return err
	}
	for _, svc := range selfTestServices() {
		if propertiesOf(svc).needs()&^f != 0 {
			continue
		}
		if err := testService(p, program, svc); err != nil {
			return fmt.Errorf("self-test: %s: %w", svc.Forward, err)
		}
	}
	return nil
}

// selfTestServices has a service of one backend for every mode, with IPv4 and IPv6 by turns. Their
// addresses are from RFC 5737 and RFC 3849.
func selfTestServices() []*lb.Service {
	var services []*lb.Service
	for i, forward := range Limits().Forwards {
		vip, backend := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), netip.MustParseAddr("198.51.100.1")
		if i%2 == 1 {
			vip, backend = netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", i)), netip.MustParseAddr("2001:db8:1::1")
		}
		b := lb.Backend{Address: backend, Port: 9, Weight: 1}
		if overlay := forward.Overlay(); overlay != lb.SegmentUnset {
			b.TunnelEnd, b.MAC, b.Segment = b.Address, lb.MAC{2, 0, 0, 0, 0, 4}, lb.Segment{Type: overlay, ID: 2}
		}
		services = append(services, &lb.Service{
			Name: "self-test", VIP: lb.VIP{Address: vip, Port: 9, Protocol: lb.TCP},
			Forward: forward, MinHealthy: 1, Backends: []lb.Backend{b},
		})
	}
	return services
}

// testService checks that a packet is passed, and sent to the backend of its service once there
// is one.
func testService(p *Plane, program *ebpf.Program, svc *lb.Service) error {
	client, backend := netip.MustParseAddrPort("203.0.113.1:40000"), svc.Backends[0].Address
	exit := "forward_" + svc.Forward.String()
	if svc.Address.Is6() {
		client = netip.MustParseAddrPort("[2001:db8:2::1]:40000")
	}
	described := builder.Description{From: client, To: netip.AddrPortFrom(svc.Address, svc.Port), Protocol: builder.TCP, Flags: builder.SYN}
	in, err := described.Build()
	if err != nil {
		return err
	}
	copy(in, selfTestHop.Source[:])
	if verdict, out, err := testRun(program, in); err != nil || verdict != xdpPass || !bytes.Equal(in, out) {
		return errors.Join(err, fmt.Errorf("without a service: verdict %d, frame % x", verdict, out))
	}
	if _, err := p.Update(context.Background(), svc); err != nil {
		return err
	}
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
	sent := bytes.HasSuffix(out, in[14:])
	if svc.Forward.Translates() {
		exit, sent = "forward_nat", bytes.Contains(out, backend.AsSlice())
	}
	switch {
	case verdict != xdpTX:
		return fmt.Errorf("verdict %d, want %d", verdict, xdpTX)
	case after[exit] != before[exit]+1:
		return fmt.Errorf("counter %s moved by %d", exit, after[exit]-before[exit])
	case !sent || lb.MAC(out[:6]) != selfTestMAC(backend):
		return fmt.Errorf("frame % x", out)
	}
	return nil
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
		hop.Destination, hop.Relay = selfTestMAC(t.Address), t.Relay != nil
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
