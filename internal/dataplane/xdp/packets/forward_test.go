// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

var (
	vip4     = netip.MustParseAddr("10.1.1.1")
	vip6     = netip.MustParseAddr("fd00:10:1:1::1")
	client4  = netip.MustParseAddrPort("192.0.2.7:41000")
	client6  = netip.MustParseAddrPort("[2001:db8::7]:41000")
	backend4 = netip.MustParseAddr("10.0.2.21")
	backend6 = netip.MustParseAddr("fd00:2::21")
)

// segment is a VLAN, or the untagged network of id 0.
func segment(id uint16) lb.Segment {
	if id == 0 {
		return lb.Segment{}
	}
	return lb.Segment{Type: lb.SegmentVLAN, ID: uint32(id)}
}

// forwardCase is one way through the program: mode, families, protocol, the
// segment in which the packet arrives, and the tags in front of and behind it.
type forwardCase struct {
	forward  lb.Forward
	vip      netip.Addr
	backend  netip.Addr
	protocol lb.Protocol
	arrival
	index int // of the interface that sends
}

// arrival is how a packet comes and in which VLAN it leaves.
type arrival struct {
	segment lb.Segment
	end     netip.Addr // of the tunnel, if the segment has one
	tagIn   uint16     // of the segment, or of the network in which the tunnel is
	tagOut  uint16
}

func (a arrival) String() string {
	return fmt.Sprintf("%s at %s/vlan %d to %d", a.segment, a.end, a.tagIn, a.tagOut)
}

func arrivals() []arrival {
	var all []arrival
	for _, tags := range [][2]uint16{{0, 0}, {100, 100}, {100, 200}, {0, 200}, {100, 0}} {
		all = append(all, arrival{segment: segment(tags[0]), tagIn: tags[0], tagOut: tags[1]})
	}
	return append(all,
		arrival{redVXLAN, local4, 0, 0}, arrival{redVXLAN, local6, 100, 200},
		arrival{redGeneve, local6, 0, 200}, arrival{redGeneve, local4, 100, 0},
	)
}

func (c forwardCase) String() string {
	return fmt.Sprintf("%s/%s over %s/%s/%s/interface %d", c.forward, family(c.vip), family(c.backend), c.protocol, c.arrival, c.index)
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

func (c forwardCase) client() netip.AddrPort {
	if c.vip.Is4() {
		return client4
	}
	return client6
}

// service leaves it to the route of a backend in a VXLAN or Geneve segment in
// which VLAN it is reached.
func (c forwardCase) service() *lb.Service {
	b := lb.Backend{Address: c.backend, Port: 80, Weight: 1, Segment: lb.Segment{Type: lb.SegmentNone}}
	if c.tagOut != 0 {
		b.Segment = segment(c.tagOut)
	}
	if overlay := c.forward.Overlay(); overlay != lb.SegmentUnset {
		b.Address = netip.MustParseAddr("172.16.0.9")
		b.TunnelEnd, b.MAC, b.Segment = c.backend, segmentMAC, lb.Segment{}
		if c.segment.Type != overlay {
			b.Segment = lb.Segment{Type: overlay, ID: 0xabcdef}
		}
	}
	return &lb.Service{
		Name:       "web",
		VIP:        lb.VIP{Address: c.vip, Port: 80, Protocol: c.protocol, Segment: c.segment},
		Forward:    c.forward,
		MinHealthy: 1,
		Backends:   []lb.Backend{b},
	}
}

// in is the frame that arrives.
func (c forwardCase) in() []byte {
	f := frame{destination: balancerMAC, source: clientMAC, ip: transport(c.service().VIP, c.client()), payload: c.payload()}
	if c.segment.Overlay() {
		f.ip = arriving(c.segment, c.end, f.ip)
	}
	if c.tagIn != 0 {
		f.tags = []uint16{5<<13 | c.tagIn}
	}
	return f.build()
}

// payload is of an odd length, for the checksums' sake.
func (forwardCase) payload() string { return "longer than the padding of a short frame." }

// want is the frame that must come out, built without the program's help.
func (c forwardCase) want() []byte { return c.marked(0) }

// marked is the frame that must come out, with a congestion mark in all its headers.
func (c forwardCase) marked(ecn uint8) []byte {
	f := frame{destination: macOf(c.backend), source: ownMAC, payload: c.payload()}
	if c.tagOut != 0 {
		f.tags = []uint16{c.tagOut}
		if c.tagIn != 0 {
			f.tags[0] |= 5 << 13 // a tag that stays keeps its priority
		}
	}
	f.ip = slices.Concat(c.outer(), transport(c.service().VIP, c.client()))
	mark(f.ip[0], ecn)
	mark(f.ip[len(f.ip)-2], ecn)
	out := f.build()
	if c.forward > lb.IPIP && c.backend.Is4() { // UDP over IPv4 goes without a checksum
		copy(out[atIP+4*len(f.tags)+20+6:], []byte{0, 0})
	}
	return out
}

// outer are the headers of the tunnel.
func (c forwardCase) outer() []gopacket.SerializableLayer {
	protocol := layers.IPProtocolIPv6
	if c.vip.Is4() {
		protocol = layers.IPProtocolIPv4
	}
	source := layers.UDPPort(0xc000 | c.hash()&0x3fff)
	inner := transport(c.service().VIP, c.client())
	svc := c.service()
	switch c.forward {
	case lb.IPIP:
		return []gopacket.SerializableLayer{c.outerIP(protocol)}
	case lb.GUE:
		return append(overUDP(c.outerIP(layers.IPProtocolUDP), source, 6080), gopacket.Payload{0, byte(protocol), 0, 0})
	case lb.VXLAN, lb.Geneve:
		s := svc.SegmentOf(svc.Backends[0])
		frame := inSegment(s, ownMAC, segmentMAC, inner)
		return append(overUDP(c.outerIP(layers.IPProtocolUDP), source, segmentPort(s)), frame[:len(frame)-len(inner)]...)
	default:
		return nil
	}
}

// outerIP is the tunnel's IP header, which copies the client's type of service.
func (c forwardCase) outerIP(protocol layers.IPProtocol) gopacket.SerializableLayer {
	if c.backend.Is4() {
		return &layers.IPv4{Version: 4, TTL: 64, TOS: 0x28, Flags: layers.IPv4DontFragment, Protocol: protocol,
			SrcIP: local4.AsSlice(), DstIP: c.backend.AsSlice()}
	}
	hash := c.hash()
	return &layers.IPv6{Version: 6, HopLimit: 64, TrafficClass: 0x28, NextHeader: protocol,
		FlowLabel: uint32(hash>>16)&0xf<<16 | uint32(hash>>8)&0xff<<8 | uint32(hash)&0xff,
		SrcIP:     local6.AsSlice(), DstIP: c.backend.AsSlice()}
}

func (c forwardCase) hash() uint64 {
	return dataplanetest.FlowHash(1, c.service().VIP, c.client(), lb.AffinityFlow)
}

// tunnelledForwards are the modes that leave the client's packet as it is; nat has
// tests of its own.
func tunnelledForwards() []lb.Forward {
	return slices.DeleteFunc(xdp.Limits().Forwards, lb.Forward.Translates)
}

func forwardCases() []forwardCase {
	var cases []forwardCase
	for _, forward := range tunnelledForwards() {
		for _, vip := range []netip.Addr{vip4, vip6} {
			for _, backend := range []netip.Addr{backend4, backend6} {
				for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
					for _, a := range arrivals() {
						cases = append(cases, forwardCase{forward, vip, backend, protocol, a, testIndex})
					}
					cases = append(cases, forwardCase{forward, vip, backend, protocol, arrival{}, testIndex + 1})
				}
			}
		}
	}
	return cases
}

// Every mode, family, protocol, segment and VLAN operation: the verdict, every byte, the
// exact set of counters and the backend's traffic.
func TestForward(t *testing.T) {
	p, hops := newTestPlane(t)
	for _, c := range forwardCases() {
		t.Run(c.String(), func(t *testing.T) {
			hops.index, hops.vlan = c.index, c.tagOut
			svc := c.service()
			update(t, p, svc)
			defer remove(t, p, svc.VIP)
			in := c.in()

			wantVerdict := uint32(xdpTX)
			if c.index != testIndex {
				wantVerdict = xdpRedirect
			}
			wantBytes(t, p, in, c.want(), wantVerdict, "forward_"+c.forward.String())
			wantTraffic := dataplane.Traffic{Packets: 1, Bytes: uint64(len(in))}
			if svc.Protocol == lb.TCP {
				wantTraffic.NewFlows = 1
			}
			checkTrace(t, trace(t, p, in), c)
			got := stats(t, p).Services[svc.VIP]
			if backend, _ := got.Backend(svc.Backends[0].ID()); got.Traffic != wantTraffic || backend != wantTraffic {
				t.Errorf("traffic %+v, want %+v", got, wantTraffic)
			}
		})
	}
}

func dump(frame []byte) string {
	return gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default).Dump()
}

// update programs a service. In short mode programs keep the features that it
// needs.
func update(t *testing.T, p *xdp.Unattached, svc *lb.Service) dataplane.Programmed {
	t.Helper()
	programmed, err := p.Update(context.Background(), svc)
	must(t, err)
	if testing.Short() {
		p.Programs.Recount(0, p.Programs.Needs())
	}
	return programmed
}

func remove(t *testing.T, p *xdp.Unattached, vip lb.VIP) {
	t.Helper()
	must(t, p.Delete(context.Background(), vip))
}

func stats(t *testing.T, p *xdp.Unattached) dataplane.Stats {
	t.Helper()
	s, err := p.Stats(context.Background())
	must(t, err)
	return s
}

// serviceNumber is the number under which the tables hold a service.
func serviceNumber(t *testing.T, p *xdp.Unattached, vip lb.VIP) uint32 {
	t.Helper()
	numbers := map[table.BalancerVipKey]uint32{}
	must(t, p.Tables.VIPs.Each(func(key table.BalancerVipKey, number uint32) error {
		numbers[key] = number
		return nil
	}))
	number, found := numbers[table.VIPKey(vip)]
	if !found {
		t.Fatalf("no number of %s", vip)
	}
	return number
}
