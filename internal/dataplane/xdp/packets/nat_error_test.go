// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// quoteOf is the packet in a frame, cut off behind so many bytes of its transport;
// all of it if that is 0.
func quoteOf(f frame, transport int) []byte {
	packet := packetOf(f)
	header := 20
	if packet[0]>>4 == 6 {
		header = 40
	}
	if transport == 0 || header+transport > len(packet) {
		return packet
	}
	return packet[:header+transport]
}

// errorFrame is an error about a packet, by a router or the session's
// other side takes for the sender, with that TTL.
func errorFrame(from, to netip.Addr, m message, quote []byte, ttl uint8) frame {
	m.body = quote
	f := icmpFrame(from, to, lb.Segment{}, m)
	switch ip := f.ip[0].(type) {
	case *layers.IPv4:
		ip.TTL = ttl
	case *layers.IPv6:
		ip.HopLimit = ttl
	}
	return f
}

// Errors about translated packets are translated back, in both directions, with
// every checksum that they hold right: whatever the router, the kind of error,
// and the length of the quote.
func TestNATErrors(t *testing.T) {
	runScenarios(t,
		scenario{"session", natCases(), steps{serve(natCase.service), newSession, sameState(func(s *scene) {
			for _, m := range errorsOf(s.vip.Address) {
				for _, transport := range []int{8, 16, 18, 19, 28, 29, 0} {
					s.t.Run(fmt.Sprintf("%d/%d quotes %d", m.kind, m.code, transport), func(t *testing.T) {
						testErrors(t, s.p, s.natCase, s.port, m, transport)
					})
				}
			}
		})}},
		// An error about a packet of no session is the kernel's, if it is for this node, and
		// dropped, if it is for the VIP.
		scenario{"no session", natCases(), steps{serve(natCase.service), func(s *scene) {
			m, there := errorsOf(s.vip.Address)[0], router(s.vip.Address)
			toNode := errorFrame(there, s.snat(), m, packetOf(s.atServer(tcpACK, 2000)), 60)
			toVIP := errorFrame(there, s.vip.Address, m, packetOf(s.atClient(tcpACK)), 60)
			wantExit(s.t, s.p, toNode.build(), xdpPass, "pass_not_vip")
			wantExit(s.t, s.p, toVIP.build(), xdpDrop, "drop_no_session")
		}}},
	)
}

// errorToClient is an error of a router on the servers' side about a packet from the node to the
// server, as it arrives and as it leaves for the client.
func (c natCase) errorToClient(port uint16, m message, transport int) (in, want frame) {
	in = errorFrame(router(c.vip.Address), c.snat(), m, quoteOf(c.atServer(tcpACK, port), transport), 60)
	want = errorFrame(c.vip.Address, c.client.Addr(), m, retimed(quoteOf(c.fromClient(tcpACK), transport), 59), 59)
	in.source, in.destination = macOf(c.backend.Addr()), ownMAC
	want.source, want.destination = balancerMAC, clientMAC
	return in, want
}

func testErrors(t *testing.T, p *xdp.Unattached, c natCase, port uint16, m message, transport int) {
	t.Helper()
	in, want := c.errorToClient(port, m, transport)
	wantFrame(t, p, in, want, xdpTX, "forward_nat_reply")
	// A router on the clients' side reports the same error about the server's
	// packet.
	in = errorFrame(router(c.vip.Address), c.vip.Address, m, quoteOf(c.atClient(tcpACK), transport), 60)
	want = errorFrame(c.snat(), c.backend.Addr(), m, retimed(quoteOf(c.fromServer(tcpACK, port), transport), 59), 59)
	in.source, in.destination = lb.MAC{2, 9, 9, 9, 9, 9}, balancerMAC // another one than the client's
	want.source, want.destination = ownMAC, macOf(c.backend.Addr())
	wantFrame(t, p, in, want, xdpTX, "forward_nat")
}

// retimed is a packet with another TTL: routers quote packets as received.
func retimed(packet []byte, ttl uint8) []byte {
	packet = bytes.Clone(packet)
	if packet[0]>>4 == 6 {
		packet[7] = ttl
		return packet
	}
	packet[8] = ttl
	fixChecksum(packet)
	return packet
}

// A packet that may make no further hop doesn't, in either direction.
func TestNATHopLimit(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		update(t, p, c.service())
		port := begin(t, p, c)
		for ttl := range uint8(3) {
			forth, back := c.fromClient(tcpACK), c.fromServer(tcpACK, port)
			forth.ip = flowIP(c.vip.Protocol, c.client, netip.AddrPortFrom(c.vip.Address, c.vip.Port), ttl, tcpACK)
			back.ip = flowIP(c.vip.Protocol, c.backend, netip.AddrPortFrom(c.snat(), port), ttl, tcpACK)
			if ttl == 2 {
				wantVerdict(t, p, forth.build(), xdpTX, "forward_nat")
				wantVerdict(t, p, back.build(), xdpTX, "forward_nat_reply")
				continue
			}
			wantVerdict(t, p, forth.build(), xdpDrop, "drop_ttl")
			wantVerdict(t, p, back.build(), xdpDrop, "drop_ttl")
		}
	}
}

// A client's packet that doesn't fit towards its backend is answered as in the
// other modes, by the VIP and about the packet as the client knows it.
func TestNATTooBig(t *testing.T) {
	p, hops := newTestPlane(t)
	hops.mtu = 1400
	for _, c := range natCases() {
		update(t, p, c.service())
		begin(t, p, c)
		c.payload = string(bytes.Repeat([]byte("x"), 1420))
		wantTooBig(t, p, c.fromClient(tcpACK), c.vip.Address, c.client.Addr())
	}
}

// A server's packet that doesn't fit towards its client is answered too, by the
// address that the server knows, if it would leave by another interface than it
// came in by.
func TestNATReplyTooBig(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		update(t, p, c.service())
	}
	program := programOf(t, p)
	inNamespace(t, func() error {
		device, err := netlink.LinkByName("fl1")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMTU(device, 1400); err != nil {
			return err
		}
		for _, c := range natCases() {
			in := c.fromClient(tcpSYN).build()
			options := ebpf.RunOptions{
				Data: in, DataOut: make([]byte, 2048),
				Context: table.BalancerXdpMd{DataEnd: uint32(len(in)), IngressIfindex: uint32(device.Attrs().Index)},
			}
			if _, err := program.Run(&options); err != nil {
				return err
			}
			port := sourcePort(t, options.DataOut)
			c.payload = string(bytes.Repeat([]byte("x"), 1300))
			wantVerdict(t, p, c.fromServer(tcpACK, port).build(), xdpRedirect, "forward_nat_reply")
			c.payload = string(bytes.Repeat([]byte("x"), 1420))
			wantTooBig(t, p, c.fromServer(tcpACK, port), c.snat(), c.backend.Addr())
		}
		return nil
	})
}

// wantTooBig sends a packet that an address answers, as it doesn't fit.
func wantTooBig(t *testing.T, p *xdp.Unattached, in frame, from, to netip.Addr) {
	t.Helper()
	out := wantVerdict(t, p, in.build(), xdpTX, "answer_too_big")
	if want := answerFrame(in, from, to, tooBig(in, from, 1400)).unpadded(); !bytes.Equal(out, want) {
		t.Errorf("%s: % x, want % x", from, out, want)
	}
}

// tooBig is the message about a packet that doesn't fit, by an address.
func tooBig(in frame, by netip.Addr, mtu uint32) message {
	if by.Is6() {
		return message{kind: 2, rest: mtu, body: packetOf(in)[:1280-48]}
	}
	return message{kind: 3, code: 4, rest: mtu, body: packetOf(in)[:576-28]}
}
