// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// single is one balancer of a service with usable backends, of which the given
// numbers are present.
func single(t *testing.T, svc lb.Service, flows, backends int, present ...int) *peers {
	b := newBalanced(t, svc)
	p := &peers{t: t, all: []*balanced{b}, homes: map[int]netip.AddrPort{}}
	for _, id := range b.shape(flows, backends).Backends {
		p.backends = append(p.backends, dataplanetest.Backend{ID: id, Weight: 1, Usable: true})
	}
	p.clients = flows
	p.present = make([]bool, backends)
	for _, i := range present {
		p.present[i] = true
	}
	p.update(b)
	return p
}

// begin sends the first packets of all flows.
func (p *peers) begin(phase dataplanetest.Phase) {
	for i := range p.clients {
		p.homes[i] = p.send(p.all[0], i, phase)
	}
}

// A sweep keeps the records of a service that a new agent has not received yet, or
// that changes while they are read.
func TestSweepOfForeignRecords(t *testing.T) {
	svc := historyServices()["ipv4/tcp/flow/minimal"]
	p := single(t, svc, 100, 4, 0, 1)
	b := p.all[0]
	other := manyBackends(vip6, 3)
	other.IdleTimeout = dataplanetest.Idle
	update(t, b.plane, other)
	other.Backends = other.Backends[1:]
	update(t, b.plane, other)

	p.present[2], p.present[3] = true, true
	p.update(b)
	p.begin(dataplanetest.Opening) // recorded with the present backends
	p.must(b.Restart())
	update(t, b.plane, other)
	p.must(b.plane.sweeper.sweep(b.plane.clock()))
	p.wantHomes(1, dataplanetest.Open)

	p.update(b)
	p.must(b.Pass(dataplanetest.Idle + time.Hour))
	p.must(b.Sweep())
	reading, err := b.plane.sweeper.sweepable(b.plane.clock() + time.Hour)
	p.must(err)
	p.present[0], p.present[1] = false, false
	p.update(b)
	p.begin(dataplanetest.Opening)
	orphans, err := b.plane.sweeper.readFlows(reading)
	p.must(err)
	if len(orphans) == 0 {
		t.Fatal("nothing was recorded meanwhile")
	}
	for number, keys := range orphans {
		over := func(flow *table.BalancerFlow) bool { return flow.Service == number }
		_, err := b.plane.sweeper.forget(keys, func() bool { return b.plane.serves(number) }, over)
		p.must(err)
	}
	p.wantHomes(1, dataplanetest.Open)
}

// A connection that begins with the record of an idle one, while records are swept, keeps it:
// without it the connection would go to the backend that the entry had before.
func TestSweepOfReusedRecords(t *testing.T) {
	p := single(t, historyServices()["ipv4/tcp/flow/minimal"], 100, 4, 0, 1)
	b := p.all[0]
	p.present[2], p.present[3] = true, true
	p.update(b)
	p.begin(dataplanetest.Opening) // recorded with the present backends
	p.must(b.Pass(dataplanetest.Idle + time.Hour))
	p.present[0] = false
	p.update(b)
	p.must(b.plane.tables.Grace.Wait(t.Context(), b.plane.tables.Grace.Now()))
	reading, err := b.plane.sweeper.sweepable(b.plane.clock() + time.Second)
	p.must(err)
	_, err = b.plane.sweeper.readFlows(reading)
	p.must(err)
	p.begin(dataplanetest.Opening)
	for _, sw := range reading {
		p.must(b.plane.sweeper.settle(sw, b.plane.clock()))
	}
	p.wantHomes(1, dataplanetest.Open)
}

// Records of services that are gone are deleted.
func TestSweepOfDeletedServices(t *testing.T) {
	p := single(t, historyServices()["ipv4/tcp/flow/full"], 100, 3, 0, 1, 2)
	p.begin(dataplanetest.Opening)
	b := p.all[0]
	other := manyBackends(vip6, 3)
	other.Tracking = lb.TrackingFull // so that records are read
	update(t, b.plane, other)
	remove(t, b.plane, b.service.VIP)
	p.must(b.plane.sweeper.sweep(b.plane.clock() + time.Hour))
	p.must(b.plane.tables.EachFlow(func(key uint64, _ *table.BalancerFlow) { t.Errorf("record %x is left", key) }))
}

// A service may learn its flows for longer than they may be idle: learned flows
// aren't forgotten before the change.
func TestLearnLongerThanIdleTime(t *testing.T) {
	svc := historyServices()["ipv4/udp/flow/minimal"]
	svc.Learn, svc.IdleTimeout = time.Minute, 30*time.Second
	p := single(t, svc, 100, 6, 0, 1, 2)
	b := p.all[0]
	p.begin(dataplanetest.Datagram)
	p.present = []bool{false, true, true, true, true, true}
	p.update(b)
	for range 3 {
		p.wantHomes(1, dataplanetest.Datagram)
		p.must(b.Pass(svc.Learn / 3))
		p.must(b.Sweep())
		p.update(b)
	}
	if s := b.plane.services[svc.VIP]; s.now.learned != 0 {
		t.Error("the change waits longer than Learn")
	}
	p.wantHomes(1, dataplanetest.Datagram)
}

// A record names a backend, not a slot: one that was made while a sweep freed
// the slot is not for the backend that gets the slot next.
func TestRecordsOfReusedSlots(t *testing.T) {
	svc := historyServices()["ipv4/tcp/flow/full"]
	p := single(t, svc, 40, 3, 0, 1)
	b := p.all[0]
	p.begin(dataplanetest.Opening)
	records := map[uint64]table.BalancerFlow{}
	p.must(b.plane.tables.EachFlow(func(key uint64, flow *table.BalancerFlow) { records[key] = *flow }))
	p.present[0] = false
	p.update(b)
	p.must(b.Pass(dataplanetest.Idle + time.Hour))
	p.must(b.Sweep())
	for key, flow := range records {
		p.must(b.plane.tables.Maps.Flows.Put(key, flow))
	}
	p.present[2] = true // it gets the slot of the one that left
	p.update(b)
	for i, home := range p.homes {
		if got := p.send(b, i, dataplanetest.Open); home == p.backends[0].ID && got != p.backends[1].ID {
			t.Fatalf("flow %d went to %s: where its backend was, or was before, is %s", i, got, p.backends[1].ID)
		}
	}
}

// The records of a closed flow are there for a while, in which its server may go
// on, and then forgotten sooner than an idle one's.
func TestIdleTime(t *testing.T) {
	closing, open := table.BalancerFlow{Closing: 1}, table.BalancerFlow{}
	if got := idleTime(&closing, time.Hour); got != closingTimeout {
		t.Errorf("a closed flow is idle after %s, want %s", got, closingTimeout)
	}
	if got := idleTime(&closing, time.Second); got != time.Second {
		t.Errorf("a closed flow is idle after %s, want the service's second", got)
	}
	if got := idleTime(&open, time.Hour); got != time.Hour {
		t.Errorf("an open flow is idle after %s, want an hour", got)
	}
}

// The latest are kept, whatever the order in which records come.
func TestLatestFlows(t *testing.T) {
	latest := latestFlows{now: 1000, limit: 3}
	for _, seen := range []uint32{10, 900, 20, 1000, 30, 999, 40, 50, 1001} {
		latest.add(&table.BalancerFlow{Seen: seen})
	}
	latest.cut()
	var got []uint32
	for _, f := range latest.flows {
		got = append(got, f.Seen)
	}
	if len(got) != 3 || got[0]+got[1] != 2001 || got[2] != 999 {
		t.Errorf("latest %v, want 1000 and 1001, then 999", got)
	}
}

// New flows that aren't recorded are reported once, until there are none for a sweep.
func TestUnrecordedFlowReports(t *testing.T) {
	svc := historyServices()["ipv4/tcp/flow/full"]
	p := single(t, svc, 40, 3, 0)
	b := p.all[0]
	reports := 0
	b.plane.sweeper.unrecorded = func(vip lb.VIP) {
		reports++
		if vip != svc.VIP {
			t.Errorf("report of %s", vip)
		}
	}
	for i, step := range []struct{ unrecorded, reports int }{{0, 0}, {5, 1}, {9, 1}, {9, 1}, {10, 2}} {
		values := make([]table.BalancerFlowStats, ebpf.MustPossibleCPU())
		values[0].Unrecorded = uint64(step.unrecorded)
		p.must(b.plane.tables.Maps.FlowStats.Put(b.plane.services[svc.VIP].Number.Base, values))
		p.must(b.Pass(time.Hour))
		p.must(b.Sweep())
		if reports != step.reports {
			t.Errorf("step %d: %d reports, want %d", i, reports, step.reports)
		}
	}
}

// Counts of backends that left are in the tables soon, so that the total doesn't go back
// if the agent is killed and the next one adopts them.
func TestSweepRetiresTraffic(t *testing.T) {
	svc := historyServices()["ipv4/tcp/flow/minimal"]
	p := single(t, svc, 100, 4, 0, 1, 2, 3)
	b := p.all[0]
	p.begin(dataplanetest.Opening)
	p.present[2], p.present[3] = false, false
	p.update(b)
	p.must(b.Pass(dataplanetest.Idle + time.Hour))
	p.must(b.Sweep()) // the slots become free
	p.must(b.plane.tables.Grace.Wait(t.Context(), b.plane.tables.Grace.Now()))
	number := b.plane.services[svc.VIP].Number.Base
	b.plane.running.Go(func() { b.plane.maintain(time.Millisecond) })
	for deadline := time.Now().Add(await.Patience); ; time.Sleep(time.Millisecond) {
		detail, err := table.ReadServiceDetail(b.plane.tables, number)
		p.must(err)
		if detail.Gone.Packets > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the traffic of two backends that left is only in the agent's memory")
		}
	}
	p.must(b.Restart())
	stats, err := b.plane.Stats(t.Context())
	p.must(err)
	if got := stats.Services[svc.VIP]; got.Packets != 100 || got.NewFlows != 100 {
		t.Errorf("after a restart the service has %+v, want 100 packets and new flows", got.Traffic)
	}
}

// A service that has no NAT any more has no sessions.
func TestSessionsWithoutNAT(t *testing.T) {
	p := openQuietPlane(t, testPins(t), fixedHops{})
	svc := manyBackends(vip4, 2)
	svc.Forward = lb.NAT
	update(t, p, svc)
	s := p.services[svc.VIP]
	session := table.BalancerNatSession{
		Service: uint16(s.Number.Base), Backend: s.now.slots[0].record(0), State: uint8(table.BalancerNatStateNAT_OPENING),
		Flags: uint8(table.BalancerNatFlagNAT_PENDING),
	}
	var err error
	if session.Seen, err = table.FlowClock(); err == nil {
		err = p.tables.Pending.Put(1<<32, &session)
	}
	must(t, err)
	for _, step := range []struct {
		forward lb.Forward
		want    int
	}{{lb.NAT, 1}, {lb.IPIP, 0}} {
		svc.Forward = step.forward
		update(t, p, svc)
		must(t, (&Unattached{Plane: p}).SweepSessions())
		stats, err := p.Stats(t.Context())
		if got := stats.Services[svc.VIP].Tracking.Flows; err != nil || got != step.want {
			t.Errorf("with %s: %d flows, want %d (%v)", step.forward, got, step.want, err)
		}
	}
}

// A client that came while records were swept stays with a backend that came meanwhile.
func TestSweepOfNewClients(t *testing.T) {
	p := openQuietPlane(t, testPins(t), fixedHops{})
	svc := manyBackends(vip4, 2)
	svc.Affinity, svc.AffinityTimeout = lb.AffinityClient, time.Hour
	all := svc.Backends
	svc.Backends = all[:1]
	update(t, p, svc)
	before, err := p.owners(t.Context())
	must(t, err)
	svc.Backends = all
	update(t, p, svc)
	s := p.services[svc.VIP]
	client := table.BalancerClient{Service: s.Number.Base, Backend: s.now.slots[1].record(1)}
	if client.Seen, err = table.ClientClock(); err == nil {
		err = p.tables.Maps.Clients.Put(uint64(1), client)
	}
	must(t, err)
	if kept, err := p.sweeper.forgetClients(before); kept != 1 || err != nil {
		t.Errorf("%d clients are remembered, want 1 (%v)", kept, err)
	}
}
