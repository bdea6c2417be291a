// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"fmt"
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

// states returns the states of the client's entry and of the server's.
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

// A session's state follows its packets, in both of its entries (RFC 5382,
// section 5; RFC 4787, section 4.3).
func TestNATStates(t *testing.T) {
	var all []scenario
	for _, test := range []struct {
		cases   []natCase
		packets []string // behind the first one
		want    table.BalancerNatState
	}{
		{tcp(natCases()), nil, table.BalancerNatStateNAT_OPENING},
		{tcp(natCases()), []string{"cS"}, table.BalancerNatStateNAT_OPENING},
		{tcp(natCases()), []string{"sSA"}, table.BalancerNatStateNAT_ANSWERED},
		{tcp(natCases()), []string{"sSA", "sSA", "cS"}, table.BalancerNatStateNAT_ANSWERED},
		{tcp(natCases()), []string{"sSA", "cA"}, table.BalancerNatStateNAT_ESTABLISHED},
		{tcp(natCases()), []string{"sSA", "cA", "cFA", "sA"}, table.BalancerNatStateNAT_ESTABLISHED},
		{tcp(natCases()), []string{"sSA", "cA", "sFA", "cA"}, table.BalancerNatStateNAT_ESTABLISHED},
		{tcp(natCases()), []string{"sSA", "cA", "cFA", "sFA"}, table.BalancerNatStateNAT_CLOSING},
		{tcp(natCases()), []string{"sSA", "cA", "sFA", "cFA", "sA"}, table.BalancerNatStateNAT_CLOSING},
		{tcp(natCases()), []string{"sSA", "cA", "cR"}, table.BalancerNatStateNAT_CLOSING},
		{tcp(natCases()), []string{"sSA", "cA", "sRA"}, table.BalancerNatStateNAT_CLOSING},
		{tcp(natCases()), []string{"sRA"}, table.BalancerNatStateNAT_CLOSING},
		{tcp(natCases()), []string{"cR"}, table.BalancerNatStateNAT_OPENING},
		{tcp(natCases()), []string{"sSA", "c"}, table.BalancerNatStateNAT_ANSWERED},
		{tcp(natCases()), []string{"sSA", "cP"}, table.BalancerNatStateNAT_ANSWERED},
		{udp(natCases()), []string{"c", "c"}, table.BalancerNatStateNAT_ONE_WAY},
		{udp(natCases()), []string{"s"}, table.BalancerNatStateNAT_TWO_WAY},
		{udp(natCases()), []string{"s", "c", "s"}, table.BalancerNatStateNAT_TWO_WAY},
	} {
		all = append(all, scenario{fmt.Sprint(test.packets), test.cases, steps{
			serve(natCase.service), newSession, send(test.packets...), state(test.want),
		}})
	}
	runScenarios(t, all...)
}

// A silent session lives as long as its state says, and no longer: not for the
// client, nor for the server, nor in the table.
func TestNATExpiry(t *testing.T) {
	var all []scenario
	for _, test := range []struct {
		protocol lb.Protocol
		packets  []string      // behind the first one
		idle     time.Duration // of the service
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
	} {
		expired := steps{exit("pass_not_vip", "sA"), exit("answer_reset", "cA")}
		if test.protocol == lb.UDP {
			expired = steps{
				exit("pass_not_vip", "s"), newSession,
				state(table.BalancerNatStateNAT_ONE_WAY), idle(test.want + 3*time.Second),
			}
		}
		live := steps{
			serve(natCase.service, func(_ *scene, svc *lb.Service) { svc.IdleTimeout = test.idle }),
			newSession, send(test.packets...),
			idle(test.want - time.Second), sweep, flowCount(1), idle(13 * time.Second),
		}
		all = append(all, scenario{
			fmt.Sprint(test.packets, test.want), []natCase{natCaseOf(vip4, test.protocol)},
			append(append(live, expired...), sweep, entries(0)),
		})
	}
	runScenarios(t, all...)
}

// A server that doesn't answer a SYN that it should answer has no connection: the client's next SYN
// begins another one. One that was silent for a moment only, or answers, keeps its connection.
func TestServerWithoutAnswer(t *testing.T) {
	const pause, retry = 3 * time.Second, time.Second
	all := []struct {
		name  string
		steps steps // behind a connection's beginning
		ended bool
	}{
		{"retransmitted", steps{idle(pause), send("cS"), idle(retry), send("cS")}, true},
		{"half open", steps{idle(pause), send("cS"), idle(retry), send("cS")}, true},
		{"retransmitted soon", steps{send("cS"), idle(retry), send("cS"), idle(2 * retry), send("cS")}, true},
		{"retransmitted once", steps{send("cS"), idle(retry), send("cS", "cS"), idle(retry / 2), send("cS")}, false},
		{"answered late", steps{send("cS"), idle(retry), send("cS", "sA"), idle(retry), send("cS")}, false},
		{"answered", steps{idle(pause), send("cS", "sA"), idle(retry), send("cS", "sA"), idle(retry), send("cS", "sA")}, false},
		{"answers limited", steps{idle(pause), send("sA", "cS"), idle(retry), send("cS")}, false},
		{"forged at once", steps{idle(pause), send("cS", "cS", "cS"), idle(retry / 2), send("cS")}, false},
		{"one", steps{idle(pause), send("cS"), idle(retry), send("cA")}, false},
		{"data under way", steps{idle(pause), send("cS"), idle(retry), send("sPA"), send("cS")}, false},
	}
	var scenarios []scenario
	for _, one := range all {
		begin, want := established, table.BalancerNatStateNAT_OPENING
		if one.name == "half open" {
			begin = func(s *scene) { newSession(s); exchange(s.t, s.p, s.natCase, s.port, "sSA") }
		}
		if !one.ended {
			want = table.BalancerNatStateNAT_ESTABLISHED
		}
		scenarios = append(scenarios, scenario{one.name, tcpModes(), append(append(steps{serve(natCase.service), begin}, one.steps...), state(want))})
	}
	runScenarios(t, scenarios...)
}

// A session that has lost one of its entries to others gets it back from the other one. If
// that belongs to another session by now, the session is over.
func TestNATEntries(t *testing.T) {
	runScenarios(t,
		scenario{"without a session, TCP", tcp(natCases()), steps{
			serve(natCase.service), exit("pass_not_vip", "sA"), exit("answer_reset", "cA"), exit("drop_no_session", "cR"),
			entries(0),
		}},
		scenario{"without a session, UDP", udp(natCases()), steps{
			serve(natCase.service), exit("pass_not_vip", "s"), newSession,
		}},
		// A SYN on a session that is closing begins another one with the same port.
		scenario{"reopened", []natCase{natCaseOf(vip6, lb.TCP)}, steps{
			serve(natCase.service), newSession, send("sSA", "cA", "cFA", "sFA", "cA", "sA"),
			samePort, state(table.BalancerNatStateNAT_OPENING),
		}},
		scenario{"client's entry is missing", natCases(), steps{
			serve(natCase.service), newSession, send("sSA", "cA"),
			sameState(lose(false), idle(10*time.Second), send("sA", "cA")),
		}},
		scenario{"server's entry is missing", natCases(), steps{
			serve(natCase.service), newSession, send("sSA", "cA"),
			sameState(lose(true), idle(10*time.Second), send("cA", "sA")),
		}},
		scenario{"port of another session", []natCase{natCaseOf(vip4, lb.TCP)}, steps{
			serve(natCase.service), newSession, send("sSA", "cA"),
			alter(true, func(e *table.BalancerNatSession) { e.ClientPort++ }), idle(10 * time.Second),
			exit("answer_reset", "cA"), deleted(false),
		}},
		scenario{"client of another session", []natCase{natCaseOf(vip4, lb.UDP)}, steps{
			serve(natCase.service), newSession,
			alter(false, func(e *table.BalancerNatSession) { e.SnatPort++ }), exit("pass_not_vip", "s"), deleted(true),
		}},
	)
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

// The answers follow the client's packets to another router, and leave from the address
// to which they came. (Servers are behind another interface: on one, frames for other
// addresses are other stations'.)
func TestNATReturnPath(t *testing.T) {
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
