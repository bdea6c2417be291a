// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// silence makes all entries older.
func silence(t *testing.T, p *xdp.Unattached, by time.Duration) {
	t.Helper()
	changeSessions(t, p, func(s *table.BalancerNatSession) bool {
		s.Seen -= uint32(by >> table.FlowTimeShift)
		return true
	})
}

// states are those of the client's entry and of the server's.
func states(t *testing.T, p *xdp.Unattached) [2]table.BalancerNatState {
	t.Helper()
	all := sessionsOf(t, p)
	if len(all) != 2 {
		t.Fatalf("%d entries, want 2: %+v", len(all), all)
	}
	var out [2]table.BalancerNatState
	for _, s := range all {
		if table.IsReply(&s) {
			out[1] = table.BalancerNatState(s.State)
		} else {
			out[0] = table.BalancerNatState(s.State)
		}
	}
	return out
}

func bothIn(s table.BalancerNatState) [2]table.BalancerNatState {
	return [2]table.BalancerNatState{s, s}
}

// exchange sends packets of a session: "c" and "s" say by whom, what follows is
// their flags.
func exchange(t *testing.T, p *xdp.Unattached, c natCase, port uint16, packets ...string) {
	t.Helper()
	for _, packet := range packets {
		var flags uint8
		for _, f := range packet[1:] {
			flags |= map[rune]uint8{'S': tcpSYN, 'A': tcpACK, 'F': tcpFIN, 'R': tcpRST, 'P': tcpPSH}[f]
		}
		if packet[0] == 'c' {
			wantFrame(t, p, c.fromClient(flags), c.atServer(flags, port), xdpTX, "forward_nat")
		} else {
			wantFrame(t, p, c.fromServer(flags, port), c.atClient(flags), xdpTX, "forward_nat_reply")
		}
	}
}

// A session's state follows its packets, in both of its entries (RFC 5382,
// section 5; RFC 4787, section 4.3).
func TestNATStates(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, test := range []struct {
		protocol lb.Protocol
		packets  []string // behind the first one
		want     table.BalancerNatState
	}{
		{lb.TCP, nil, table.BalancerNatStateNAT_OPENING},
		{lb.TCP, []string{"cS"}, table.BalancerNatStateNAT_OPENING},
		{lb.TCP, []string{"sSA"}, table.BalancerNatStateNAT_ANSWERED},
		{lb.TCP, []string{"sSA", "sSA", "cS"}, table.BalancerNatStateNAT_ANSWERED},
		{lb.TCP, []string{"sSA", "cA"}, table.BalancerNatStateNAT_ESTABLISHED},
		{lb.TCP, []string{"sSA", "cA", "cFA", "sA"}, table.BalancerNatStateNAT_ESTABLISHED},
		{lb.TCP, []string{"sSA", "cA", "sFA", "cA"}, table.BalancerNatStateNAT_ESTABLISHED},
		{lb.TCP, []string{"sSA", "cA", "cFA", "sFA"}, table.BalancerNatStateNAT_CLOSING},
		{lb.TCP, []string{"sSA", "cA", "sFA", "cFA", "sA"}, table.BalancerNatStateNAT_CLOSING},
		{lb.TCP, []string{"sSA", "cA", "cR"}, table.BalancerNatStateNAT_CLOSING},
		{lb.TCP, []string{"sSA", "cA", "sRA"}, table.BalancerNatStateNAT_CLOSING},
		{lb.TCP, []string{"sRA"}, table.BalancerNatStateNAT_CLOSING},
		{lb.TCP, []string{"cR"}, table.BalancerNatStateNAT_OPENING},
		{lb.TCP, []string{"sSA", "c"}, table.BalancerNatStateNAT_ANSWERED},
		{lb.TCP, []string{"sSA", "cP"}, table.BalancerNatStateNAT_ANSWERED},
		{lb.UDP, []string{"c", "c"}, table.BalancerNatStateNAT_ONE_WAY},
		{lb.UDP, []string{"s"}, table.BalancerNatStateNAT_TWO_WAY},
		{lb.UDP, []string{"s", "c", "s"}, table.BalancerNatStateNAT_TWO_WAY},
	} {
		for _, vip := range []netip.Addr{vip4, vip6} {
			t.Run(fmt.Sprint(test.protocol, family(vip), test.packets), func(t *testing.T) {
				c := natCaseOf(vip, test.protocol)
				update(t, p, c.service())
				endAllSessions(t, p)
				port := begin(t, p, c)
				exchange(t, p, c, port, test.packets...)
				if got := states(t, p); got != bothIn(test.want) {
					t.Errorf("states %d, want %d", got, test.want)
				}
			})
		}
	}
}

// natTimes says how long sessions may be silent, by what led to their state.
func natTimes() []struct {
	protocol lb.Protocol
	packets  []string
	idle     time.Duration // of the service
	want     time.Duration
} {
	return []struct {
		protocol lb.Protocol
		packets  []string
		idle     time.Duration
		want     time.Duration
	}{
		{lb.TCP, nil, 0, time.Minute},
		{lb.TCP, []string{"sSA"}, 0, time.Minute},
		{lb.TCP, []string{"sSA", "cA"}, 0, 2*time.Hour + 4*time.Minute},
		{lb.TCP, []string{"sSA", "cA"}, 90 * time.Second, 90 * time.Second},
		{lb.TCP, []string{"sSA", "cA", "cFA", "sFA"}, 0, 2 * time.Minute},
		{lb.UDP, nil, 0, 30 * time.Second},
		{lb.UDP, nil, 5 * time.Second, 5 * time.Second},
		{lb.UDP, []string{"s"}, 0, 2 * time.Minute},
		{lb.UDP, []string{"s"}, time.Hour, time.Hour},
	}
}

// A silent session lives as long as its state says, and no longer: not for the
// client, nor for the server, nor in the table.
func TestNATExpiry(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, test := range natTimes() {
		t.Run(fmt.Sprint(test.protocol, test.packets, test.want), func(t *testing.T) {
			c := natCaseOf(vip4, test.protocol)
			svc := c.service()
			svc.IdleTimeout = test.idle
			update(t, p, svc)
			endAllSessions(t, p)
			port := begin(t, p, c)
			exchange(t, p, c, port, test.packets...)

			silence(t, p, test.want-time.Second)
			if err := p.SweepSessions(); err != nil {
				t.Fatal(err)
			}
			if n := stats(t, p).Services[c.vip].Tracking.Flows; n != 1 {
				t.Errorf("%d flows, want 1", n)
			}
			silence(t, p, 13*time.Second)
			in := c.fromServer(tcpACK, port).build()
			wantExit(t, p, in, xdpPass, "pass_not_vip")
			if c.vip.Protocol == lb.TCP {
				wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpTX, "answer_reset")
			} else {
				wantVerdict(t, p, c.fromClient(0).build(), xdpTX, "forward_nat")
				if got := states(t, p); got != bothIn(table.BalancerNatStateNAT_ONE_WAY) {
					t.Errorf("states %d, want a new session", got)
				}
				silence(t, p, test.want+3*time.Second)
			}
			if err := p.SweepSessions(); err != nil {
				t.Fatal(err)
			}
			if n := len(sessionsOf(t, p)); n != 0 {
				t.Errorf("%d entries are left", n)
			}
		})
	}
}

func wantVerdict(t *testing.T, p *xdp.Unattached, in []byte, verdict uint32, exit string) []byte {
	t.Helper()
	var got uint32
	var out []byte
	moved := exits(t, p, func() { got, out = run(t, p, in) })
	if got != verdict || len(moved) != 1 || moved[exit] != 1 {
		t.Errorf("verdict %d, counters %v, want %d and %s", got, moved, verdict, exit)
	}
	return out
}

// What belongs to no session: TCP can't continue here and its client gets a reset, UDP
// begins one, and what a server might have sent is none of ours.
func TestNATWithoutSession(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			update(t, p, c.service())
			endAllSessions(t, p)
			wantExit(t, p, c.fromServer(tcpACK, 20000).build(), xdpPass, "pass_not_vip")
			if c.vip.Protocol == lb.UDP {
				wantVerdict(t, p, c.fromClient(0).build(), xdpTX, "forward_nat")
				return
			}
			out := wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpTX, "answer_reset")
			if want := resetFrame(c).build(); string(out) != string(want[:len(out)]) {
				t.Errorf("% x, want % x", out, want)
			}
			wantExit(t, p, c.fromClient(tcpRST).build(), xdpDrop, "drop_no_session")
			if n := len(sessionsOf(t, p)); n != 0 {
				t.Errorf("%d entries", n)
			}
		})
	}
}

// resetFrame is the answer to a segment with ACK.
func resetFrame(c natCase) frame {
	f := c.atClient(tcpRST)
	f.payload = ""
	tcp := f.ip[1].(*layers.TCP)
	tcp.Seq, tcp.Ack, tcp.Window = 0xf1f2f3f4, 0, 0
	switch ip := f.ip[0].(type) {
	case *layers.IPv4:
		ip.TTL, ip.TOS, ip.Id, ip.Flags = 64, 0, 0, layers.IPv4DontFragment
	case *layers.IPv6:
		ip.HopLimit, ip.TrafficClass = 64, 0
	}
	return f
}

// A SYN on a session that is closing begins another one, with the same port if
// that suits; what is left of the old one is gone.
func TestNATBeginsAnew(t *testing.T) {
	p, _ := newTestPlane(t)
	c := natCaseOf(vip6, lb.TCP)
	update(t, p, c.service())
	port := begin(t, p, c)
	exchange(t, p, c, port, "sSA", "cA", "cFA", "sFA", "cA", "sA")
	if again := begin(t, p, c); again != port {
		t.Errorf("port %d, want %d as before", again, port)
	}
	if got := states(t, p); got != bothIn(table.BalancerNatStateNAT_OPENING) {
		t.Errorf("states %d", got)
	}
}

// The answers follow the client's packets to another router, and leave from the address
// to which they came. (Servers are behind another interface: on one, frames for other
// addresses are other stations'.)
func TestNATReturnsTheWayItCame(t *testing.T) {
	p, hops := newTestPlane(t)
	hops.index = testIndex + 1
	c := natCaseOf(vip4, lb.UDP)
	update(t, p, c.service())
	c.index = hops.index
	port := begin(t, p, c)
	moved := c.fromClient(0)
	moved.source[5], moved.destination[5] = 0xee, 0xdd
	wantFrame(t, p, moved, c.atServer(0, port), xdpRedirect, "forward_nat")
	back := c.atClient(0)
	back.destination, back.source = moved.source, moved.destination
	wantFrame(t, p, c.fromServer(0, port), back, xdpTX, "forward_nat_reply")
}

// A session that has lost one of its entries to others gets it back from the
// other one.
func TestNATHeals(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprint(c.vip, " reply ", lost), func(t *testing.T) {
				update(t, p, c.service())
				endAllSessions(t, p)
				port := begin(t, p, c)
				exchange(t, p, c, port, "sSA", "cA")
				want := states(t, p)
				changeSessions(t, p, func(s *table.BalancerNatSession) bool { return table.IsReply(s) != lost })
				silence(t, p, 10*time.Second)
				if lost {
					exchange(t, p, c, port, "cA", "sA")
				} else {
					exchange(t, p, c, port, "sA", "cA")
				}
				if got := states(t, p); got != want {
					t.Errorf("states %d, want %d", got, want)
				}
			})
		}
	}
}

// A session whose port is another's by now is over: its client gets a reset, and
// the other one's server nothing.
func TestNATLosesItsPort(t *testing.T) {
	p, _ := newTestPlane(t)
	c := natCaseOf(vip4, lb.TCP)
	update(t, p, c.service())
	port := begin(t, p, c)
	exchange(t, p, c, port, "sSA", "cA")
	changeSessions(t, p, func(s *table.BalancerNatSession) bool {
		if table.IsReply(s) {
			s.ClientPort++
		}
		return true
	})
	silence(t, p, 10*time.Second)
	wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpTX, "answer_reset")
	for _, s := range sessionsOf(t, p) {
		if !table.IsReply(&s) {
			t.Errorf("the session is still there: %+v", s)
		}
	}
}

// A session whose client has another one by now is over too: its server gets the
// kernel's answer, which is that the port is closed.
func TestNATLosesItsClient(t *testing.T) {
	p, _ := newTestPlane(t)
	c := natCaseOf(vip4, lb.UDP)
	update(t, p, c.service())
	port := begin(t, p, c)
	changeSessions(t, p, func(s *table.BalancerNatSession) bool {
		if !table.IsReply(s) {
			s.SnatPort++
		}
		return true
	})
	wantExit(t, p, c.fromServer(0, port).build(), xdpPass, "pass_not_vip")
	for _, s := range sessionsOf(t, p) {
		if table.IsReply(&s) {
			t.Errorf("the session is still there: %+v", s)
		}
	}
}
