// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/lb"
)

const (
	xdpRedirect = 4
	loopback    = 1
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
}

// someLoad has 2048 flows to four VIPs.
func someLoad(protocol lb.Protocol, ipv6 bool) Load {
	l := Load{
		Destination: lb.MAC{2, 0, 0, 0, 0, 1}, Source: lb.MAC{2, 0, 0, 0, 0, 2},
		Client: netip.MustParseAddr("198.18.0.0"),
		VIP:    lb.VIP{Address: netip.MustParseAddr("10.1.1.0"), Port: 80, Protocol: protocol},
		VIPs:   4, Flows: 2048, Size: 128,
	}
	if ipv6 {
		l.Client, l.VIP.Address = netip.MustParseAddr("2001:2::"), netip.MustParseAddr("fd00:10:1::")
	}
	return l
}

// next makes one packet as a sender does, without sending it.
func (s *Sender) next(t *testing.T) []byte {
	t.Helper()
	options := &ebpf.RunOptions{Data: s.frame, DataOut: make([]byte, 2*MaxSize)}
	verdict, err := s.objects.Transmit.Run(options)
	if err != nil || verdict != xdpRedirect {
		t.Fatalf("verdict %d, %v, want %d", verdict, err, xdpRedirect)
	}
	return options.DataOut
}

func newTestSender(t *testing.T, l Load) *Sender {
	t.Helper()
	needRoot(t)
	s, err := NewSender(loopback, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// flowOf takes a packet apart, checks everything in it but the flow, and returns
// the flow: client and VIP.
func flowOf(t *testing.T, l Load, frame []byte) (client, vip netip.AddrPort) {
	t.Helper()
	if again := reserialize(t, frame); !bytes.Equal(again, frame) {
		t.Fatalf("lengths or checksums are wrong:\n% x\nwant\n% x", frame, again)
	}
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	ethernet := packet.LinkLayer().(*layers.Ethernet)
	if ethernet.DstMAC.String() != l.Destination.String() || ethernet.SrcMAC.String() != l.Source.String() {
		t.Errorf("from %s to %s", ethernet.SrcMAC, ethernet.DstMAC)
	}
	source, destination := packet.NetworkLayer().NetworkFlow().Endpoints()
	from, _ := netip.AddrFromSlice(source.Raw())
	to, _ := netip.AddrFromSlice(destination.Raw())
	switch header := packet.TransportLayer().(type) {
	case *layers.UDP:
		return netip.AddrPortFrom(from, uint16(header.SrcPort)), netip.AddrPortFrom(to, uint16(header.DstPort))
	case *layers.TCP:
		if header.SYN != l.SYN || header.ACK == l.SYN || header.RST || header.FIN {
			t.Errorf("flags of %v", header)
		}
		return netip.AddrPortFrom(from, uint16(header.SrcPort)), netip.AddrPortFrom(to, uint16(header.DstPort))
	}
	t.Fatalf("no transport: %s", packet)
	return client, vip
}

// reserialize is the packet with lengths and checksums as gopacket computes them.
func reserialize(t *testing.T, frame []byte) []byte {
	t.Helper()
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	transport := packet.TransportLayer()
	if transport == nil {
		t.Fatalf("no transport: % x", frame)
	}
	checked := transport.(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	})
	if err := checked.SetNetworkLayerForChecksum(packet.NetworkLayer()); err != nil {
		t.Fatal(err)
	}
	return build(t,
		packet.LinkLayer().(gopacket.SerializableLayer),
		packet.NetworkLayer().(gopacket.SerializableLayer),
		transport.(gopacket.SerializableLayer),
		gopacket.Payload(transport.LayerPayload()), // whatever the port makes it look like
	)
}

func TestEveryFlowOfAWalkComesOnce(t *testing.T) {
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
		for _, ipv6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s ipv6=%v", protocol, ipv6), func(t *testing.T) {
				l := someLoad(protocol, ipv6)
				s := newTestSender(t, l)
				orders := make([]string, 2)
				for walk := range orders {
					clients, vips := map[netip.AddrPort]bool{}, map[netip.AddrPort]int{}
					for range l.Flows {
						frame := s.next(t)
						if len(frame) != l.Size {
							t.Fatalf("frame of %d bytes, want %d", len(frame), l.Size)
						}
						client, vip := flowOf(t, l, frame)
						clients[client] = true
						vips[vip]++
						orders[walk] += client.String()
					}
					if len(clients) != l.Flows || len(vips) != l.VIPs {
						t.Errorf("%d flows to %d VIPs, want %d to %d", len(clients), len(vips), l.Flows, l.VIPs)
					}
					if last := netip.AddrPortFrom(nth(l.VIP.Address, l.VIPs-1), l.VIP.Port); vips[last] != l.Flows/l.VIPs {
						t.Errorf("%d packets to %s, want %d", vips[last], last, l.Flows/l.VIPs)
					}
				}
				if orders[0] == orders[1] {
					t.Error("both walks have the same order")
				}
			})
		}
	}
}

func nth(a netip.Addr, n int) netip.Addr {
	for range n {
		a = a.Next()
	}
	return a
}

// More flows than clients: the others have the next port.
func TestManyFlows(t *testing.T) {
	l := someLoad(lb.UDP, false)
	l.Flows, l.VIPs = MaxFlows, 1
	s := newTestSender(t, l)
	ports := map[uint16]bool{}
	for range 1000 {
		client, _ := flowOf(t, l, s.next(t))
		if client.Port() < 1024 {
			t.Fatalf("client %s", client)
		}
		ports[client.Port()] = true
	}
	if len(ports) < 500 {
		t.Errorf("only %d ports of clients", len(ports))
	}
}

func TestSYN(t *testing.T) {
	l := someLoad(lb.TCP, true)
	l.SYN = true
	flowOf(t, l, newTestSender(t, l).next(t))
}

func TestMix(t *testing.T) {
	for _, mix := range []Mix{{7, 4, 1}, {128, 10, 1}} {
		l := someLoad(lb.UDP, false)
		l.Size, l.Mix = 0, mix
		s := newTestSender(t, l)
		sizes, sum := map[int]int{}, 0
		for range 10 * mix.frames() {
			frame := s.next(t)
			flowOf(t, l, frame)
			sizes[len(frame)]++
			sum += len(frame) + 4
		}
		if sizes[60] != 10*mix[0] || sizes[590] != 10*mix[1] || sizes[MaxSize] != 10*mix[2] {
			t.Errorf("%v: frames by size: %v", mix, sizes)
		}
		if mean := float64(sum) / float64(10*mix.frames()); math.Abs(l.MeanSize()-mean) > 1e-9 {
			t.Errorf("%v: mean size %v, want %v", mix, l.MeanSize(), mean)
		}
	}
}

// A tagged frame is an untagged one with the tag after its addresses.
func TestTagged(t *testing.T) {
	for _, mix := range []Mix{{}, {0, 0, 1}} {
		l := someLoad(lb.TCP, false)
		l.VLAN, l.Mix = 0x123, mix
		if mix.frames() > 0 {
			l.Size = 0
		}
		frame := newTestSender(t, l).next(t)
		if float64(len(frame)+4) != l.MeanSize() || !bytes.Equal(frame[12:16], []byte{0x81, 0, 1, 0x23}) {
			t.Fatalf("frame of %d bytes: % x", len(frame), frame)
		}
		flowOf(t, l, slices.Delete(frame, 12, 16))
	}
}

// A front makes the same packets, also if the program behind it has left the
// frame longer than it was.
func TestFront(t *testing.T) {
	needRoot(t)
	bare, err := LoadBare()
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	l := someLoad(lb.TCP, false)
	f, err := NewFront(bare, l)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, in := range [][]byte{f.frame, make([]byte, l.Size+40)} {
		options := &ebpf.RunOptions{Data: in, DataOut: make([]byte, 2*MaxSize)}
		verdict, err := f.objects.Front.Run(options)
		if err != nil || verdict != xdpTX || len(options.DataOut) != l.Size {
			t.Fatalf("verdict %d, %d bytes, %v", verdict, len(options.DataOut), err)
		}
		flowOf(t, l, options.DataOut)
	}
	if perPacket, err := f.Run(MinFrames); err != nil || perPacket <= 0 {
		t.Errorf("%v ns for a packet, %v", perPacket, err)
	}
	if perPacket, err := f.Run(10); err == nil {
		t.Errorf("%v ns for each of ten packets, want an error", perPacket)
	}
}

func TestRefusedLoads(t *testing.T) {
	for want, change := range map[string]func(*Load){
		"two families":  func(l *Load) { l.Client = netip.MustParseAddr("2001:2::") },
		"3 flows":       func(l *Load) { l.Flows = 3 },
		"0 flows":       func(l *Load) { l.Flows = 0 },
		"4096 VIPs":     func(l *Load) { l.VIPs = 4096 },
		"53 bytes":      func(l *Load) { l.Size = 53 },
		"of 1515 bytes": func(l *Load) { l.Size = MaxSize + 1 },
		"size or a mix": func(l *Load) { l.Mix = Mix{1, 0, 0} },
		"id 4095":       func(l *Load) { l.VLAN = 4095 },
	} {
		l := someLoad(lb.TCP, false)
		change(&l)
		if _, err := NewSender(loopback, l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %s", err, want)
		}
	}
}
