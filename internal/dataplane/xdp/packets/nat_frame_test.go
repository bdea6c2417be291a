// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// natCase is one way of a session: families and protocol, the VLANs of clients
// and servers, and the interface that reaches the servers.
type natCase struct {
	vip     lb.VIP
	backend netip.AddrPort
	client  netip.AddrPort
	tagOut  uint16
	index   int
	payload string
	// hops is the hop limit of the client's packets as they arrive from the station via.
	hops uint8
	via  lb.MAC
	// keep makes the mode DSR, which keeps the client's address and port.
	keep bool
}

// natCaseOf has one backend, whose port isn't the service's.
func natCaseOf(vip netip.Addr, protocol lb.Protocol) natCase {
	c := natCase{
		vip:    lb.VIP{Address: vip, Port: 80, Protocol: protocol},
		client: clientOf(vip, 41000), backend: netip.AddrPortFrom(backend4, 8080), index: testIndex,
		hops: 60, via: clientMAC,
		payload: "of an odd length, for the checksums' sake.!",
	}
	if vip.Is6() {
		c.backend = netip.AddrPortFrom(backend6, 8080)
	}
	return c
}

func natCases() []natCase {
	var cases []natCase
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			cases = append(cases, natCaseOf(vip, protocol))
		}
	}
	return cases
}

func (c natCase) String() string {
	if c.keep {
		return c.vip.String() + " with the client's address"
	}
	return c.vip.String()
}

// next is the case of the client with the next port.
func (c natCase) next() natCase {
	c.client = netip.AddrPortFrom(c.client.Addr(), c.client.Port()+1)
	return c
}

func (c natCase) service() *lb.Service {
	b := lb.Backend{Address: c.backend.Addr(), Port: c.backend.Port(), Weight: 1, Segment: lb.Segment{Type: lb.SegmentNone}}
	if c.tagOut != 0 {
		b.Segment = segment(c.tagOut)
	}
	svc := &lb.Service{Name: "web", VIP: c.vip, Forward: lb.NAT, MinHealthy: 1, Backends: []lb.Backend{b}}
	if c.keep {
		svc.Forward = lb.DSR
	}
	return svc
}

// snat is the address that the server sees: the client's, or the route's preferred
// source.
func (c natCase) snat() netip.Addr {
	if c.keep {
		return c.client.Addr()
	}
	if c.vip.Address.Is4() {
		return local4
	}
	return local6
}

// TCP flags by their place in the header's 14th byte.
const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
	tcpPSH
	tcpACK
)

// flowIP is the IP and transport header of a packet between any two ends, with
// that TTL and, with TCP, these flags.
func flowIP(protocol lb.Protocol, from, to netip.AddrPort, ttl, flags uint8) []gopacket.SerializableLayer {
	stack := transport(lb.VIP{Address: to.Addr(), Port: to.Port(), Protocol: protocol}, from)
	switch ip := stack[0].(type) {
	case *layers.IPv4:
		ip.TTL = ttl
	case *layers.IPv6:
		ip.HopLimit = ttl
	}
	if tcp, ok := stack[1].(*layers.TCP); ok {
		tcp.FIN, tcp.SYN, tcp.RST = flags&tcpFIN != 0, flags&tcpSYN != 0, flags&tcpRST != 0
		tcp.PSH, tcp.ACK = flags&tcpPSH != 0, flags&tcpACK != 0
		tcp.Seq, tcp.Ack = 0x01020305, 0xf1f2f3f4
		if tcp.SYN {
			tcp.Seq--
		}
	}
	return stack
}

// answering gives a packet of flowIP the numbers of the server's side.
func answering(stack []gopacket.SerializableLayer) []gopacket.SerializableLayer {
	if tcp, ok := stack[1].(*layers.TCP); ok {
		tcp.Seq, tcp.Ack = 0xf1f2f3f4, 0x01020305
		if tcp.SYN {
			tcp.Seq--
		}
	}
	return stack
}

// fromClient is a client's packet as it arrives.
func (c natCase) fromClient(flags uint8) frame {
	f := frame{
		destination: balancerMAC, source: c.via, payload: c.payload,
		ip: flowIP(c.vip.Protocol, c.client, netip.AddrPortFrom(c.vip.Address, c.vip.Port), c.hops, flags),
	}
	if c.vip.Segment.Tagged() {
		f.tags = []uint16{5<<13 | uint16(c.vip.Segment.ID)}
	}
	return f
}

// atServer is that packet as it leaves, from a port.
func (c natCase) atServer(flags uint8, port uint16) frame {
	f := frame{
		destination: macOf(c.backend.Addr()), source: ownMAC, payload: c.payload,
		ip: flowIP(c.vip.Protocol, netip.AddrPortFrom(c.snat(), port), c.backend, c.hops-1, flags),
	}
	if c.tagOut != 0 {
		f.tags = []uint16{c.tagOut}
		if c.vip.Segment.Tagged() {
			f.tags[0] |= 5 << 13
		}
	}
	return f
}

// fromServer is the server's packet to a port as it arrives, atClient the packet
// that then leaves.
func (c natCase) fromServer(flags uint8, port uint16) frame {
	f := frame{
		destination: ownMAC, source: macOf(c.backend.Addr()), payload: c.payload,
		ip: answering(flowIP(c.vip.Protocol, c.backend, netip.AddrPortFrom(c.snat(), port), 60, flags)),
	}
	if c.tagOut != 0 {
		f.tags = []uint16{3<<13 | c.tagOut}
	}
	return f
}

func (c natCase) atClient(flags uint8) frame {
	f := frame{
		destination: c.via, source: balancerMAC, payload: c.payload,
		ip: answering(flowIP(c.vip.Protocol, netip.AddrPortFrom(c.vip.Address, c.vip.Port), c.client, 59, flags)),
	}
	if c.vip.Segment.Tagged() {
		f.tags = []uint16{uint16(c.vip.Segment.ID)}
		if c.tagOut != 0 {
			f.tags[0] |= 3 << 13
		}
	}
	return f
}

// sourcePort reads the port from which a frame without options was sent.
func sourcePort(t *testing.T, frame []byte) uint16 {
	t.Helper()
	at := 12
	if binary.BigEndian.Uint16(frame[at:]) == 0x8100 {
		at += 4
	}
	header := 20
	if binary.BigEndian.Uint16(frame[at:]) == 0x86dd {
		header = 40
	}
	return binary.BigEndian.Uint16(frame[at+2+header:])
}

// sessionsOf are all entries of NAT sessions.
func sessionsOf(t *testing.T, p *xdp.Unattached) map[uint64]table.BalancerNatSession {
	t.Helper()
	all := map[uint64]table.BalancerNatSession{}
	p.Tables.EachSession(func(key uint64, s *table.BalancerNatSession) { all[key] = *s })
	return all
}

// changeSessions rewrites or, where change says no, deletes entries.
func changeSessions(t *testing.T, p *xdp.Unattached, change func(*table.BalancerNatSession) bool) {
	t.Helper()
	for key, s := range sessionsOf(t, p) {
		last, keep := s, change(&s)
		if !keep || (s.Flags^last.Flags)&uint8(table.BalancerNatFlagNAT_PENDING) != 0 {
			table.SessionTable(p.Tables, &last).Delete(key)
		}
		if keep {
			must(t, table.SessionTable(p.Tables, &s).Put(key, &s))
		}
	}
}

// protocolOf returns the protocol of a session's packets.
func protocolOf(s *table.BalancerNatSession) lb.Protocol {
	if table.BalancerNatState(s.State) < table.BalancerNatStateNAT_ONE_WAY {
		return lb.TCP
	}
	return lb.UDP
}

// confirmSessions makes pending sessions established ones.
func confirmSessions(t *testing.T, p *xdp.Unattached) {
	t.Helper()
	confirmSessionsUntil(t, p, 0)
}

// confirmSessionsUntil is confirmSessions; the last packets came so long from now.
func confirmSessionsUntil(t *testing.T, p *xdp.Unattached, from time.Duration) {
	t.Helper()
	pending := map[uint64]table.BalancerNatSession{}
	p.Tables.Pending.Each(func(key uint64, s *table.BalancerNatSession) { pending[key] = *s })
	for key, s := range pending {
		s.Flags &^= uint8(table.BalancerNatFlagNAT_PENDING)
		s.Seen += uint32(from >> table.FlowTimeShift)
		if protocolOf(&s) == lb.TCP {
			s.State = uint8(table.BalancerNatStateNAT_ESTABLISHED)
		} else {
			s.State = uint8(table.BalancerNatStateNAT_TWO_WAY)
		}
		must(t, p.Tables.Sessions.Put(key, &s))
		p.Tables.Pending.Delete(key)
	}
}

func endAllSessions(t *testing.T, p *xdp.Unattached) {
	t.Helper()
	changeSessions(t, p, func(*table.BalancerNatSession) bool { return false })
}
