// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// tcpSegment is a TCP segment of a flow with the flags that flag sets. A SYN has the number 0,
// unless flag sets another one, and others the one after it.
func tcpSegment(vip lb.VIP, client netip.AddrPort, flag func(*layers.TCP)) []byte {
	f := clientFrame(vip, client)
	tcp := f.ip[1].(*layers.TCP)
	tcp.SYN, tcp.ACK = false, true
	flag(tcp)
	if !tcp.SYN {
		tcp.Seq++
	}
	f.ip = []gopacket.SerializableLayer{f.ip[0], tcp}
	return f.build()
}

func liveFlows(t *testing.T, p *xdp.Unattached, svc *lb.Service) int {
	t.Helper()
	counts, err := p.CountFlows(context.Background())
	must(t, err)
	total := 0
	for _, n := range counts[svc.VIP] {
		total += n
	}
	return total
}

// age makes all records older than they are.
func age(t *testing.T, p *xdp.Unattached, by time.Duration) {
	t.Helper()
	for _, flows := range []*ebpf.Map{p.Tables.Maps.Flows, p.Tables.Maps.FlowsPending} {
		aged := map[uint64]table.BalancerFlow{}
		err := table.EachRecord(flows, func(key uint64, flow *table.BalancerFlow) {
			flow.Seen -= uint32(by >> table.FlowTimeShift)
			aged[key] = *flow
		})
		for key, flow := range aged {
			err = errors.Join(err, flows.Put(key, flow))
		}
		must(t, err)
	}
}

// A flow that its client has closed doesn't count after some seconds of silence,
// a SYN opens it again, and a live one counts until it is idle.
func TestCountFlows(t *testing.T) {
	const closedSilence = 3 * time.Second // until a closed flow doesn't count
	syn := func(tcp *layers.TCP) { tcp.SYN, tcp.ACK = true, false }
	none := func(*layers.TCP) {}
	fin := func(tcp *layers.TCP) { tcp.FIN = true }
	rst := func(tcp *layers.TCP) { // after the payload
		tcp.RST, tcp.Seq = true, uint32(len(clientFrame(lb.VIP{Address: vip4}, client4).payload))
	}
	p, _ := newTestPlane(t)
	svc := tracked(vip4, 3)
	update(t, p, svc)
	send := func(client netip.AddrPort, flags ...func(*layers.TCP)) {
		for _, flag := range flags {
			run(t, p, tcpSegment(svc.VIP, client, flag))
		}
	}
	clients := make([]netip.AddrPort, 3)
	for i := range clients {
		clients[i] = netip.AddrPortFrom(client4.Addr(), uint16(1000+i))
		send(clients[i], syn, none)
	}
	want := func(live int, when string) {
		t.Helper()
		if got := liveFlows(t, p, svc); got != live {
			t.Errorf("%s: %d flows are live, want %d", when, got, live)
		}
	}
	want(3, "open")
	send(clients[0], fin)
	send(clients[1], rst)
	want(3, "just closed")
	send(netip.AddrPortFrom(client4.Addr(), 2000), rst)
	want(3, "a reset of nothing")
	age(t, p, 2*closedSilence)
	want(1, "closed a while ago")
	send(clients[0], none) // acknowledges the server's last data
	want(2, "half closed")
	age(t, p, 2*closedSilence)
	send(clients[1], syn, none)
	age(t, p, 2*closedSilence)
	want(2, "opened again")
	age(t, p, svc.Idle()+time.Minute)
	want(0, "idle")

	update(t, p, svc)
	if got := stats(t, p).Services[svc.VIP].NewFlows; got != 4 {
		t.Errorf("%d new flows, want the 4 SYNs", got)
	}
}

// New flows are counted for the backend that has the counter now, not for the one that had it
// before, and for the service also when their backend has left and another agent
// has come.
func TestNewFlowCounters(t *testing.T) {
	dir, hops := testPins(t), newStaticHops()
	p := openTestPlane(t, dir, hops)
	first, second := manyBackends(vip4, 1), manyBackends(vip4, 1)
	second.Backends[0].Address = netip.MustParseAddr("10.0.2.99")
	send := func(n int) {
		for i := range n {
			run(t, p, flowPacket(first.VIP, netip.AddrPortFrom(client4.Addr(), uint16(1000+i))))
		}
	}
	want := func(svc *lb.Service, backend, all uint64, when string) {
		t.Helper()
		got := stats(t, p).Services[svc.VIP]
		if b, _ := got.Backend(svc.Backends[0].ID()); b.NewFlows != backend || got.NewFlows != all {
			t.Errorf("%s: %d new flows of the backend and %d of the service, want %d and %d", when, b.NewFlows, got.NewFlows, backend, all)
		}
	}
	update(t, p, first)
	send(5)
	want(first, 5, 5, "first")
	update(t, p, second)
	send(3)
	want(second, 3, 8, "second")
	if err := p.SweepFlows(2 * first.Idle()); err != nil { // the first one's slot becomes free
		t.Fatal(err)
	}
	want(second, 3, 8, "the first has left")
	must(t, p.Close())
	p = openTestPlane(t, dir, hops)
	update(t, p, second)
	send(2)
	want(second, 5, 10, "another agent")
}

// Packets of a flow may come on two processors at once: it has one record, which says that
// the client has closed.
func TestFlowsOnTwoProcessors(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one processor handles one packet after the other")
	}
	const flows = 4000
	p, _ := newTestPlane(t)
	svc := tracked(vip4, 2)
	svc.IdleTimeout = 8 * time.Hour
	update(t, p, svc)
	segment := func(client netip.AddrPort, fin bool) []byte {
		return tcpSegment(svc.VIP, client, func(tcp *layers.TCP) { tcp.FIN = fin })
	}
	for n := range flows {
		client := clientNumber(n)
		run(t, p, tcpSegment(svc.VIP, client, func(tcp *layers.TCP) { tcp.SYN, tcp.ACK = true, false }))
		setLimit(t, p, table.BalancerRateRATE_CONFIRM, 0)
		atOnce(t, p, segment(client, false), segment(client, false))
		atOnce(t, p, segment(client, true), segment(client, false))
	}
	wantClosed(t, p, svc, flows)
}

// wantClosed checks that there are so many records, none of which counts as live.
func wantClosed(t *testing.T, p *xdp.Unattached, svc *lb.Service, want int) {
	t.Helper()
	have := countRecords(t, p.Tables.Maps.Flows) + countRecords(t, p.Tables.Maps.FlowsPending)
	age(t, p, time.Minute)
	if live := liveFlows(t, p, svc); have != want || live != 0 {
		t.Errorf("%d records, want %d; %d of closed flows count as live", have, want, live)
	}
}

// The first packet that is recorded of a connection may be a keep-alive probe, which has the
// number before the next one (RFC 9293, section 3.8.4).
func TestCloseAfterKeepAlive(t *testing.T) {
	p, _ := newTestPlane(t)
	s := newUnstableService(t, p, webVIP)
	s.Tracking = lb.TrackingFull
	s.change(2)
	for i, flags := range []uint8{tcpFIN | tcpACK, tcpRST, tcpRST | tcpACK} {
		s.at(clientNumber(i), tcpACK, clientNext-1)
		s.at(clientNumber(i), flags, clientNext)
	}
	if pending := countRecords(t, p.Tables.Maps.FlowsPending); pending != 3 {
		t.Errorf("%d pending records, want 3", pending)
	}
	wantClosed(t, p, s.Service, 3)
}
