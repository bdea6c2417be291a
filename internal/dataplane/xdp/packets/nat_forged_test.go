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
			for range 65535 {
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

// A flood of SYNs and datagrams evicts nothing but what floods leave: connections that
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

// A SYN for an open flow may be forged: the flow stays until a segment follows the SYN's
// number, as that of a new connection from the same port does.
func TestForgedSYNMovesNoFlow(t *testing.T) {
	p := quietPlane(t, testPins(t))
	svc := manyBackends(vip4, 2)
	update(t, p, svc)
	homes := map[netip.AddrPort]lb.BackendID{}
	for i := range 200 {
		client := netip.AddrPortFrom(client4.Addr(), uint16(1000+i))
		homes[client], _ = chosen(t, p, svc.VIP, client, svc.Backends)
	}
	more := manyBackends(vip4, 5)
	update(t, p, more)
	at := func(client netip.AddrPort, syn bool, seq uint32) lb.BackendID {
		t.Helper()
		frame := tcpSegment(svc.VIP, client, func(tcp *layers.TCP) { tcp.SYN, tcp.ACK, tcp.Seq = syn, !syn, seq })
		verdict, out := run(t, p, frame)
		id, _ := receiver(t, verdict, out, svc.VIP, more.Backends)
		return id
	}
	moved := 0
	for client, home := range homes {
		if got := at(client, false, 100); got != home {
			t.Fatalf("%s is at %s, began at %s", client, got, home)
		}
		to := at(client, true, 0x12345678)
		if got := at(client, false, 200); got != home {
			t.Errorf("%s moved from %s to %s by a forged SYN", client, home, got)
		}
		at(client, true, 0x40000000)
		if got := at(client, false, 0x40000001); got != to {
			t.Errorf("a new connection of %s is at %s, its SYN went to %s", client, got, to)
		}
		if to != home {
			moved++
		}
	}
	if moved == 0 {
		t.Error("no flow's entry has another backend")
	}
}

// A flood on one service, on entries that are unstable too, evicts no record of a flow that
// began after the change: neither SYNs nor segments of unknown connections do.
func TestFloodEvictsNoFlow(t *testing.T) {
	for _, syn := range []bool{true, false} {
		p := quietPlane(t, testPins(t))
		svc, other := manyBackends(vip4, 2), manyBackends(vip4, 2)
		other.VIP.Port = 81
		update(t, p, svc)
		update(t, p, other)
		svc, other = manyBackends(vip4, 8), manyBackends(vip4, 8)
		other.VIP.Port = 81
		update(t, p, svc)
		update(t, p, other)
		at := func(vip lb.VIP, client netip.AddrPort, syn bool) lb.BackendID {
			frame := tcpSegment(vip, client, func(tcp *layers.TCP) { tcp.SYN, tcp.ACK = syn, !syn })
			verdict, out := run(t, p, frame)
			id, _ := receiver(t, verdict, out, vip, svc.Backends)
			return id
		}
		homes := map[netip.AddrPort]lb.BackendID{}
		for i := range 200 {
			client := netip.AddrPortFrom(client4.Addr(), uint16(1000+i))
			homes[client] = at(svc.VIP, client, true)
			at(svc.VIP, client, false)
		}
		for i := range 2 * testCapacity.Flows {
			setLimit(t, p, table.BalancerRateRATE_RECORD, 0)
			at(other.VIP, netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 16), 1}), uint16(i)), syn)
		}
		if stats(t, p).Services[other.VIP].Tracking.Inserts < uint64(testCapacity.Flows) {
			t.Error("the flood made too few records")
		}
		for client, home := range homes {
			if got := at(svc.VIP, client, false); got != home {
				t.Errorf("syn %v: %s moved from %s to %s", syn, client, home, got)
			}
		}
	}
}

// When there are too many new flows, they begin where their later packets go without a
// record: on the previous ring's backend.
func TestTooManyNewFlows(t *testing.T) {
	p := quietPlane(t, testPins(t))
	update(t, p, manyBackends(vip4, 2))
	svc := manyBackends(vip4, 8)
	update(t, p, svc)
	setLimit(t, p, table.BalancerRateRATE_RECORD, ^uint64(0))
	for i := range 200 {
		var ids [2]lb.BackendID
		for n, syn := range []bool{true, false} {
			frame := tcpSegment(svc.VIP, netip.AddrPortFrom(client4.Addr(), uint16(1000+i)), func(tcp *layers.TCP) { tcp.SYN, tcp.ACK = syn, !syn })
			verdict, out := run(t, p, frame)
			ids[n], _ = receiver(t, verdict, out, svc.VIP, svc.Backends)
		}
		if ids[0] != ids[1] {
			t.Errorf("flow %d began at %s and is at %s", i, ids[0], ids[1])
		}
	}
	if got := stats(t, p).Services[svc.VIP].Tracking; got.Inserts != 0 || got.Unrecorded == 0 {
		t.Errorf("%+v, want flows without records", got)
	}
}
