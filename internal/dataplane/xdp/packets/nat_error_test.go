// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
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
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		update(t, p, c.service())
		port := begin(t, p, c)
		before := states(t, p)
		for _, m := range errorsOf(c.vip.Address) {
			for _, transport := range []int{8, 16, 18, 19, 28, 29, 0} {
				t.Run(fmt.Sprintf("%s %d/%d quotes %d", c.vip, m.kind, m.code, transport), func(t *testing.T) {
					testErrors(t, p, c, port, m, transport)
				})
			}
		}
		if got := states(t, p); got != before {
			t.Errorf("errors changed states from %d to %d", before, got)
		}
		endAllSessions(t, p)
		remove(t, p, c.vip)
	}
}

func testErrors(t *testing.T, p *xdp.Unattached, c natCase, port uint16, m message, transport int) {
	vip, there := c.vip.Address, router(c.vip.Address)
	// A router on the servers' side says that what we sent didn't arrive.
	in := errorFrame(there, c.snat(), m, quoteOf(c.atServer(tcpACK, port), transport), 60)
	want := errorFrame(vip, c.client.Addr(), m, retimed(quoteOf(c.fromClient(tcpACK), transport), 59), 59)
	in.source, in.destination = macOf(c.backend.Addr()), ownMAC
	want.source, want.destination = balancerMAC, clientMAC
	wantError(t, p, in, want, "forward_nat_reply")
	// One on the clients' side says the same of what the server sent.
	in = errorFrame(there, vip, m, quoteOf(c.atClient(tcpACK), transport), 60)
	want = errorFrame(c.snat(), c.backend.Addr(), m, retimed(quoteOf(c.fromServer(tcpACK, port), transport), 59), 59)
	in.source, in.destination = lb.MAC{2, 9, 9, 9, 9, 9}, balancerMAC // another one than the client's
	want.source, want.destination = ownMAC, macOf(c.backend.Addr())
	wantError(t, p, in, want, "forward_nat")
}

// retimed is a packet with another TTL: routers quote what they got.
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

func wantError(t *testing.T, p *xdp.Unattached, in, want frame, exit string) {
	t.Helper()
	out := wantVerdict(t, p, in.build(), xdpTX, exit)
	if want := want.build(); !bytes.Equal(out, want) {
		t.Errorf("frame differs:\n%s\n% x\n% x", cmp.Diff(dump(want), dump(out)), want, out)
	}
}

// Errors about packets of no session: the kernel's, if they are for this node,
// and of no session, if they are for the VIP.
func TestNATErrorsOfNoSession(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		update(t, p, c.service())
		m := errorsOf(c.vip.Address)[0]
		wantExit(t, p, errorFrame(router(c.vip.Address), c.snat(), m, packetOf(c.atServer(tcpACK, 2000)), 60).build(), xdpPass, "pass_not_vip")
		wantExit(t, p, errorFrame(router(c.vip.Address), c.vip.Address, m, packetOf(c.atClient(tcpACK)), 60).build(), xdpDrop, "drop_no_session")
		remove(t, p, c.vip)
	}
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
