// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

var (
	vip4     = netip.MustParseAddr("10.1.1.1")
	vip6     = netip.MustParseAddr("fd00:10:1:1::1")
	client4  = netip.MustParseAddrPort("192.0.2.7:41000")
	client6  = netip.MustParseAddrPort("[2001:db8::7]:41000")
	backend4 = netip.MustParseAddr("10.0.2.21")
	backend6 = netip.MustParseAddr("fd00:2::21")
)

func segment(id uint16) lb.Segment {
	if id == 0 {
		return lb.Segment{}
	}
	return lb.Segment{Type: lb.SegmentVLAN, ID: uint32(id)}
}

// forwardCase is one way through the program: mode, families, protocol and the
// tags in front of and behind it.
type forwardCase struct {
	forward  lb.Forward
	vip      netip.Addr
	backend  netip.Addr
	protocol lb.Protocol
	tagIn    uint16
	tagOut   uint16
	index    int // of the interface that sends
}

func (c forwardCase) String() string {
	return fmt.Sprintf("%s/%s over %s/%s/vlan %d to %d/interface %d", c.forward, family(c.vip), family(c.backend), c.protocol, c.tagIn, c.tagOut, c.index)
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

func (c forwardCase) service() *lb.Service {
	b := lb.Backend{Address: c.backend, Port: 80, Weight: 1, Segment: lb.Segment{Type: lb.SegmentNone}}
	if c.tagOut != 0 {
		b.Segment = segment(c.tagOut)
	}
	return &lb.Service{
		Name:       "web",
		VIP:        lb.VIP{Address: c.vip, Port: 80, Protocol: c.protocol, Segment: segment(c.tagIn)},
		Forward:    c.forward,
		MinHealthy: 1,
		Backends:   []lb.Backend{b},
	}
}

// want is the frame that must come out, built without the program's help.
func (c forwardCase) want() []byte {
	f := clientFrame(c.service().VIP, c.client())
	f.destination, f.source = macOf(c.backend), ownMAC
	f.tags = nil
	if c.tagOut != 0 {
		f.tags = []uint16{c.tagOut}
		if c.tagIn != 0 {
			f.tags[0] |= 5 << 13 // a tag that stays keeps its priority
		}
	}
	if c.forward == lb.IPIP {
		f.ip = append([]gopacket.SerializableLayer{c.outer()}, f.ip...)
	}
	return f.build()
}

// outer is the tunnel header of RFC 2003 or RFC 2473.
func (c forwardCase) outer() gopacket.SerializableLayer {
	protocol := layers.IPProtocolIPv6
	if c.vip.Is4() {
		protocol = layers.IPProtocolIPv4
	}
	if c.backend.Is4() {
		return &layers.IPv4{Version: 4, TTL: 64, TOS: 0x28, Flags: layers.IPv4DontFragment, Protocol: protocol,
			SrcIP: local4.AsSlice(), DstIP: c.backend.AsSlice()}
	}
	hash := flowHash(1, c.service().VIP, c.client(), lb.AffinityFlow)
	return &layers.IPv6{Version: 6, HopLimit: 64, TrafficClass: 0x28, NextHeader: protocol,
		FlowLabel: uint32(hash>>16)&0xf<<16 | uint32(hash>>8)&0xff<<8 | uint32(hash)&0xff,
		SrcIP:     local6.AsSlice(), DstIP: c.backend.AsSlice()}
}

func forwardCases() []forwardCase {
	var cases []forwardCase
	for _, forward := range Limits().Forwards {
		for _, vip := range []netip.Addr{vip4, vip6} {
			for _, backend := range []netip.Addr{backend4, backend6} {
				for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
					for _, tags := range [][2]uint16{{0, 0}, {100, 100}, {100, 200}, {0, 200}, {100, 0}} {
						for _, index := range []int{testIndex, testIndex + 1} {
							cases = append(cases, forwardCase{forward, vip, backend, protocol, tags[0], tags[1], index})
						}
					}
				}
			}
		}
	}
	return cases
}

// Every mode, family, protocol and VLAN operation: the verdict, every byte, the
// exact set of counters and the backend's traffic.
func TestForward(t *testing.T) {
	p, hops := newTestPlane(t)
	for _, c := range forwardCases() {
		t.Run(c.String(), func(t *testing.T) {
			hops.index = c.index
			svc := c.service()
			update(t, p, svc)
			defer remove(t, p, svc.VIP)
			in := flowPacket(svc.VIP, c.client())

			var verdict uint32
			var out []byte
			moved := exits(t, p, func() { verdict, out = run(t, p, in) })

			wantVerdict := uint32(xdpTX)
			if c.index != testIndex {
				wantVerdict = xdpRedirect
			}
			if verdict != wantVerdict {
				t.Errorf("verdict %d, want %d", verdict, wantVerdict)
			}
			if want := c.want(); !bytes.Equal(out, want) {
				t.Errorf("frame differs:\n%s", cmp.Diff(dump(want), dump(out)))
			}
			if want := map[string]uint64{"forward_" + c.forward.String(): 1}; !maps.Equal(moved, want) {
				t.Errorf("counters %v, want %v", moved, want)
			}
			wantTraffic := dataplane.Traffic{Packets: 1, Bytes: uint64(len(in))}
			if got := stats(t, p).Services[svc.VIP]; got.Traffic != wantTraffic || got.Backends[svc.Backends[0].ID()] != wantTraffic {
				t.Errorf("traffic %+v, want %+v", got, wantTraffic)
			}
		})
	}
}

func dump(frame []byte) string {
	return gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default).Dump()
}

func update(t *testing.T, p *Plane, svc *lb.Service) dataplane.Programmed {
	t.Helper()
	programmed, err := p.Update(context.Background(), svc)
	if err != nil {
		t.Fatal(err)
	}
	return programmed
}

func remove(t *testing.T, p *Plane, vip lb.VIP) {
	t.Helper()
	if err := p.Delete(context.Background(), vip); err != nil {
		t.Fatal(err)
	}
}

func stats(t *testing.T, p *Plane) dataplane.Stats {
	t.Helper()
	s, err := p.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
