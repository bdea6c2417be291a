// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
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
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := openTestPlane(t, pins, newStaticHops())
	check := func() {
		t.Helper()
		if err := second.SweepSessions(); err != nil {
			t.Fatal(err)
		}
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
	p, _ := newTestPlane(t)
	c := natCaseOf(vip4, lb.UDP)
	svc := c.twoBackends()
	update(t, p, svc)
	first := chosenBy(t, p, c)
	stayed := *svc
	stayed.Backends = nil
	for _, b := range svc.Backends {
		if b.Address != first.server.Addr() {
			stayed.Backends = append(stayed.Backends, b)
		}
	}
	update(t, p, &stayed)
	later := time.Duration(0)
	taken := func() int {
		t.Helper()
		later += time.Hour // behind the service's own idle time-out: its ring settles
		if err := p.SweepSessions(); err != nil {
			t.Fatal(err)
		}
		if err := p.Tables.Grace.Wait(context.Background(), p.Tables.Grace.Now()); err != nil {
			t.Fatal(err)
		}
		if err := p.SweepFlows(later); err != nil {
			t.Fatal(err)
		}
		return p.SlotsInUse(c.vip)
	}
	if n := taken(); n != 2 {
		t.Fatalf("%d slots are taken, want 2", n)
	}
	in := c.fromClient(0).build()
	if end := endOf(lb.UDP, wantVerdict(t, p, in, xdpTX, "forward_nat")); end != first {
		t.Errorf("moved from %v to %v", first, end)
	}
	silence(t, p, 35*time.Second)
	if n := taken(); n != 1 {
		t.Errorf("%d slots are taken, want 1", n)
	}
	if got := stats(t, p).Services[c.vip]; got.Packets != 2 || got.NewFlows != 1 {
		t.Errorf("traffic %+v", got.Traffic)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
func TestNATServiceLeaves(t *testing.T) {
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
	if err := p.SweepSessions(); err != nil {
		t.Fatal(err)
	}
	if n := len(sessionsOf(t, p)); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// A refused connection is reported to the agent, if the service's check is passive: a
// reset that answers the first packet, and no other.
func TestNATRefusals(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		c := natCaseOf(vip, lb.TCP)
		quiet, passive := c.service(), c.service()
		passive.Health = &lb.HealthCheck{Type: lb.HealthTCP, Passive: true}
		update(t, p, quiet)
		port := begin(t, p, c)
		exchange(t, p, c, port, "sRA")
		update(t, p, passive)
		port = begin(t, p, c)
		exchange(t, p, c, port, "sSA", "cA", "sRA")
		port = begin(t, p, c)
		exchange(t, p, c, port, "sRA", "sRA")
		select {
		case got := <-p.Refused():
			if want := (dataplane.Refusal{VIP: c.vip, Backend: c.backend}); got != want {
				t.Errorf("refused by %v, want %v", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no refusal was reported")
		}
		select {
		case got := <-p.Refused():
			t.Errorf("reported %v too", got)
		default:
		}
	}
}

// Affinity picks the backend of new sessions: all of a client at one, and QUIC
// connections where their ids say.
func TestNATAffinity(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := manyBackends(vip4, 16)
	svc.Forward, svc.Affinity = lb.NAT, lb.AffinityClient
	update(t, p, svc)
	servers := map[netip.AddrPort]bool{}
	for port := range 32 {
		_, out := run(t, p, flowPacket(svc.VIP, clientOf(vip4, 2000+port)))
		servers[endOf(svc.Protocol, out).server] = true
	}
	if len(servers) != 1 {
		t.Errorf("flows of a client went to %v", servers)
	}
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
