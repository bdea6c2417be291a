// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"context"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
)

// Sessions are in tables that outlive the agent: the next one uses them,
// and gives no port away that one has.
func TestNATRestart(t *testing.T) {
	pins := testPins(t)
	first := openTestPlane(t, pins, newStaticHops())
	ports := map[lb.VIP]uint16{}
	for _, c := range natCases() {
		update(t, first, c.service())
		ports[c.vip] = begin(t, first, c)
		exchange(t, first, c, ports[c.vip], "sSA", "cA")
	}
	must(t, first.Close())
	second := openTestPlane(t, pins, newStaticHops())
	check := func() {
		t.Helper()
		must(t, second.SweepSessions())
		for _, c := range natCases() {
			exchange(t, second, c, ports[c.vip], "cA", "sA")
		}
	}
	check()
	for _, c := range natCases() {
		update(t, second, c.service())
	}
	check()
}

// The slot of a backend that has left stays its own as long as a session names it,
// then it is free; and the session's traffic still counts.
func TestNATKeepsSlots(t *testing.T) {
	later := time.Duration(0)
	slots := func(want int) step {
		return func(s *scene) {
			later += time.Hour // behind the service's own idle time-out: its ring settles
			must(s.t, s.p.SweepSessions())
			must(s.t, s.p.Tables.Grace.Wait(context.Background(), s.p.Tables.Grace.Now()))
			must(s.t, s.p.SweepFlows(later))
			if n := s.p.SlotsInUse(s.vip); n != want {
				s.t.Fatalf("%d slots are taken, want %d", n, want)
			}
		}
	}
	runScenarios(t, scenario{"", udp(natCases())[:1], steps{
		serve(natCase.twoBackends), newSessionOf, change(removed), slots(2), send("c"),
		idle(35 * time.Second), slots(1), traffic(3, 1),
	}})
}

// Sessions are listed and counted as flows; one that closes is said to.
func TestNATFlowsAreListed(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		update(t, p, c.service())
		port := begin(t, p, c)
		if c.vip.Protocol == lb.TCP {
			exchange(t, p, c, port, "sRA")
		}
	}
	got := flows(t, p, dataplane.FlowQuery{Limit: 10})
	if got.Matching != 4 || got.Records != 4 || got.Capacity != testCapacity.Flows+testCapacity.Sessions {
		t.Errorf("%+v", got)
	}
	for _, f := range got.Flows {
		c := natCaseOf(f.VIP.Address, f.VIP.Protocol)
		if f.Client != c.client || f.Backend != c.backend || f.Closing != (f.VIP.Protocol == lb.TCP) || f.Age > time.Minute {
			t.Errorf("%+v", f)
		}
	}
	silence(t, p, 10*time.Second)
	counts, err := p.CountFlows(context.Background())
	must(t, err)
	for _, c := range natCases() {
		want := 0
		if c.vip.Protocol == lb.UDP {
			want = 1
		}
		if n := counts[c.vip][c.backend]; n != want {
			t.Errorf("%s: %d flows, want %d", c.vip, n, want)
		}
	}
}

// A service that is deleted takes its sessions along, also when another one gets
// its VIP or its number.
func TestNATServiceDeleted(t *testing.T) {
	p := openTestPlane(t, testPins(t), newStaticHops()) // in short mode a shared one would keep NAT
	c := natCaseOf(vip6, lb.TCP)
	// Not by update, which keeps NAT in short mode.
	if _, err := p.Update(t.Context(), c.service()); err != nil {
		t.Fatal(err)
	}
	port := begin(t, p, c)
	exchange(t, p, c, port, "sSA", "cA")
	remove(t, p, c.vip)
	wantExit(t, p, c.fromServer(tcpACK, port).build(), xdpPass, "pass_not_vip")
	wantExit(t, p, c.fromClient(tcpACK).build(), xdpPass, "pass_not_vip")
	if _, err := p.Update(t.Context(), c.service()); err != nil {
		t.Fatal(err)
	}
	wantExit(t, p, c.fromServer(tcpACK, port).build(), xdpPass, "pass_not_vip")
	wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpTX, "answer_reset")
	must(t, p.SweepSessions())
	if n := len(sessionsOf(t, p)); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// A refused connection is reported to the agent, if the service's check is passive: a
// reset that answers the first packet, and no other.
func TestNATRefusals(t *testing.T) {
	runScenarios(t, scenario{"", tcp(natCases()), steps{
		serve(natCase.service), newSession, send("sRA"),
		change(func(_ *scene, svc *lb.Service) { svc.Health = &lb.HealthCheck{Type: lb.HealthTCP, Passive: true} }),
		newSession, send("sSA", "cA", "sRA"), newSession, send("sRA", "sRA"),
		func(s *scene) {
			select {
			case got := <-s.p.Refused():
				if want := (dataplane.Refusal{VIP: s.vip, Backend: s.backend}); got != want {
					s.t.Errorf("refused by %v, want %v", got, want)
				}
			case <-time.After(await.Patience):
				s.t.Fatal("no refusal was reported")
			}
			select {
			case got := <-s.p.Refused():
				s.t.Errorf("reported %v too", got)
			default:
			}
		},
	}})
}

// QUIC connections begin sessions where their IDs say. The contract has other affinities.
func TestNATQUIC(t *testing.T) {
	p, _ := newTestPlane(t)
	quic := quicService(vip4, 16)
	quic.Forward, quic.Port = lb.NAT, 443
	for i := range quic.Backends {
		quic.Backends[i].Port = 8443
	}
	update(t, p, quic)
	for n := range 16 {
		f := clientFrame(quic.VIP, clientOf(vip4, 2000+n))
		f.payload = shortHeader(connectionID(serverID(n)))
		_, out := run(t, p, f.build())
		if got, want := endOf(lb.UDP, out).server, quic.Backends[n].ID(); got != want {
			t.Errorf("connection of %s went to %s", want, got)
		}
	}
}
