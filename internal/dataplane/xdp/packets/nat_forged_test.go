// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fuzzrand"
)

// numbered is a client's segment with these numbers.
func (c natCase) numbered(flags uint8, seq, ack uint32) []byte {
	f := c.fromClient(flags)
	tcp := f.ip[1].(*layers.TCP)
	tcp.Seq, tcp.Ack = seq, ack
	return f.build()
}

// What the numbers of a connection are in the tests: the server has acknowledged
// clientNext, and the client serverNext.
const (
	clientNext = 0x01020305
	serverNext = 0xf1f2f3f4
)

// established opens a connection and returns its port at the server.
func established(t *testing.T, p *xdp.Unattached, c natCase) uint16 {
	t.Helper()
	port := begin(t, p, c)
	exchange(t, p, c, port, "sSA", "cA")
	if got := states(t, p); got != bothIn(table.BalancerNatStateNAT_ESTABLISHED) {
		t.Fatalf("states %d, want an established session", got)
	}
	return port
}

// forgedCases are TCP with translated addresses, and with the client's kept (DSR).
func forgedCases() (cases []natCase) {
	for _, c := range natCases() {
		if c.vip.Protocol == lb.TCP {
			kept := c
			kept.keep, kept.index = true, testIndex
			cases = append(cases, c, kept)
		}
	}
	return cases
}

// Forged segments of an idle connection don't end it, nor move it: they have the wrong
// numbers (RFC 5961).
func TestForgedSegments(t *testing.T) {
	p, _ := newTestPlane(t)
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	for _, c := range forgedCases() {
		t.Run(fmt.Sprint(c.vip, " kept ", c.keep), func(t *testing.T) {
			update(t, p, c.service())
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			port := established(t, p, c)
			for range repeated(65536) {
				seq, ack := random.Uint32(), random.Uint32()
				if seq-clientNext < 2 || ack-serverNext < 1<<17 {
					continue
				}
				for _, flags := range []uint8{tcpRST, tcpRST | tcpACK, tcpSYN} {
					run(t, p, c.numbered(flags, seq, ack))
				}
			}
			if got := states(t, p); got != bothIn(table.BalancerNatStateNAT_ESTABLISHED) {
				t.Errorf("states %d after forged segments", got)
			}
			silence(t, p, time.Hour)
			if err := p.SweepSessions(); err != nil {
				t.Fatal(err)
			}
			exchange(t, p, c, port, "cA", "sA")
			run(t, p, c.numbered(tcpRST, clientNext, 0))
			if got := states(t, p); got != bothIn(table.BalancerNatStateNAT_CLOSING) {
				t.Errorf("states %d after the client's RST", got)
			}
		})
	}
}

// A connection isn't established by an ACK of a sender that hasn't received the server's SYN.
func TestForgedHandshake(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range forgedCases() {
		t.Run(fmt.Sprint(c.vip, " kept ", c.keep), func(t *testing.T) {
			update(t, p, c.service())
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			port := begin(t, p, c)
			exchange(t, p, c, port, "sSA")
			forged := c.numbered(tcpACK, clientNext, serverNext-1)
			if c.keep { // it may be of a connection that another node knows
				wantVerdict(t, p, forged, xdpTX, "answer_reset")
			} else {
				wantVerdict(t, p, forged, xdpTX, "forward_nat")
			}
			if got := states(t, p); got != bothIn(table.BalancerNatStateNAT_ANSWERED) {
				t.Errorf("states %d", got)
			}
			exchange(t, p, c, port, "cA")
			if got := states(t, p); got != bothIn(table.BalancerNatStateNAT_ESTABLISHED) {
				t.Errorf("states %d", got)
			}
		})
	}
}

// A flood of SYNs and datagrams, two from each client, evicts nothing but what floods leave: connections that
// are established go on.
func TestFloodEvictsNoSession(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, flood := range []lb.Protocol{lb.TCP, lb.UDP} {
		for _, c := range natCases() {
			t.Run(fmt.Sprint(c.vip, " in ", flood), func(t *testing.T) {
				update(t, p, c.service())
				defer remove(t, p, c.vip)
				defer endAllSessions(t, p)
				port := begin(t, p, c)
				exchange(t, p, c, port, "sSA", "cA")
				other := natCaseOf(c.vip.Address, flood)
				other.vip.Port, other.backend = 81, netip.AddrPortFrom(c.backend.Addr().Next(), 81)
				update(t, p, other.service())
				defer remove(t, p, other.vip)
				for i := range 4 * testCapacity.Sessions {
					other.client = netip.AddrPortFrom(clientOf(c.vip.Address, 0).Addr().Next(), uint16(i))
					run(t, p, other.fromClient(tcpSYN).build())
					run(t, p, other.fromClient(tcpSYN).build())
				}
				exchange(t, p, c, port, "cA", "sA")
			})
		}
	}
}

// Ports of sessions that no client has confirmed are given to others when none is free,
// and those of established connections never.
func TestFloodTakesNoPort(t *testing.T) {
	const ports = 200
	p, _ := newNATPlane(t, program.NAT{FirstPort: 1, LastPort: ports})
	for _, c := range natCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			update(t, p, c.service())
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			port := begin(t, p, c)
			exchange(t, p, c, port, "sSA", "cA")
			silence(t, p, -time.Hour) // however long this test takes
			flood := c
			for i := range 10 * ports {
				flood.client = clientOf(c.vip.Address, 2000+i)
				wantVerdict(t, p, flood.fromClient(tcpSYN).build(), xdpTX, "forward_nat")
			}
			exchange(t, p, c, port, "cA", "sA")
		})
	}
}

// After a RST with another number, of a client with data under way, the session stays, but
// its port is given to others once both sides have been silent for minutes.
func TestPortAfterReset(t *testing.T) {
	p, _ := newNATPlane(t, program.NAT{FirstPort: 7, LastPort: 7})
	c := natCaseOf(vip4, lb.TCP)
	update(t, p, c.service())
	other := c
	other.client = clientOf(c.vip.Address, 2000)
	established(t, p, c)
	run(t, p, c.numbered(tcpRST, clientNext+1000, 0))
	wantVerdict(t, p, other.fromClient(tcpSYN).build(), xdpDrop, "drop_no_nat_port")
	silence(t, p, 3*time.Minute)
	wantVerdict(t, p, other.fromClient(tcpSYN).build(), xdpTX, "forward_nat")
	endAllSessions(t, p)
	established(t, p, c)
	run(t, p, c.numbered(tcpRST, clientNext+1000, 0))
	run(t, p, c.fromClient(tcpACK).build()) // the connection continues
	silence(t, p, 3*time.Minute)
	wantVerdict(t, p, other.fromClient(tcpSYN).build(), xdpDrop, "drop_no_nat_port")
}
