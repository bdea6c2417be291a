// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// An agent that adopts the tables knows the clients, before and after it has received
// of the service.
func TestClientsOutliveAgents(t *testing.T) {
	c := clientCase{lb.L2DSR, false, vip4, lb.TCP}
	dir := testPins(t)
	w := newClientService(t, quietPlane(t, dir, program.FeatureL2DSR|program.FeatureClients), c, 6)
	homes := w.arrive(20)
	w.grow(12)
	must(t, w.p.Close())
	w.p = quietPlane(t, dir, program.FeatureL2DSR|program.FeatureClients)
	w.hops = hopsOf(w.p)
	w.wantHomes(homes)
	w.change(func(*lb.Service) {})
	must(t, w.p.SweepClients())
	w.wantHomes(homes)
}

// Unneeded records are deleted: records that are too old, and records of backends
// that have left and of services that don't remember clients any more.
func TestClientsAreSwept(t *testing.T) {
	eachClientService(t, clientPlane(t), 4, func(w *clientService) {
		want := func(n int) {
			w.t.Helper()
			must(w.t, w.p.SweepClients())
			w.wantRemembered(n)
		}
		w.arrive(16)
		want(16)
		w.wait(testAffinity - time.Minute)
		w.arrive(5)
		want(16)
		w.wait(2 * time.Minute)
		want(5)
		w.change(func(svc *lb.Service) { svc.AffinityTimeout = time.Second })
		w.wait(2 * time.Second)
		want(0)
		w.change(func(svc *lb.Service) { svc.AffinityTimeout = 0 })
		w.arrive(3)
		want(0)
		w.change(func(svc *lb.Service) { svc.AffinityTimeout = testAffinity })
		w.arrive(3)
		want(3)
		w.change(func(svc *lb.Service) { svc.AffinityTimeout = 0 })
		want(0)
	})
}

// A record is its backend's alone: another one in the same slot gets none of its
// clients, nor does another service of the same number.
func TestClientsOfAnotherBackend(t *testing.T) {
	p := quietPlane(t, "", program.FeatureL2DSR|program.FeatureClients)
	w := newClientService(t, p, clientCase{lb.L2DSR, false, vip6, lb.TCP}, 12)
	homes := w.arrive(30)
	forge := func(change func(*table.BalancerClient)) {
		t.Helper()
		for key, c := range w.remembered() {
			change(&c)
			must(t, p.Tables.Maps.Clients.Put(key, c))
		}
	}
	w.grow(12)
	rings := w.rings(30)
	w.wantHomes(homes)
	forge(func(c *table.BalancerClient) { c.Backend += 1 << 16 })
	w.wantHomes(rings)
	forge(func(c *table.BalancerClient) { c.Service++ })
	w.change(func(svc *lb.Service) { svc.Backends = svc.Backends[:12] })
	w.wantHomes(homes)
	forge(func(c *table.BalancerClient) { c.Backend |= 0x7fff })
	w.wantHomes(homes)
	w.grow(12)
	forge(func(c *table.BalancerClient) { c.Address[15] ^= 1 })
	before := w.remembered()
	w.wantHomes(rings)
	for key, c := range w.remembered() {
		if before[key] != c {
			t.Errorf("a record of another client was overwritten: %+v", c)
		}
	}
}

// A successor gives no backend a generation that a record still has.
func TestClientsGenerationsAreNotReused(t *testing.T) {
	dir := testPins(t)
	p := quietPlane(t, dir, program.FeatureNAT|program.FeatureClients)
	w := newClientService(t, p, clientCase{lb.NAT, false, vip4, lb.TCP}, 2)
	w.change(func(svc *lb.Service) { svc.Backends = w.service(3).Backends[2:] })
	w.arrive(8)
	endAllSessions(t, w.p)
	w.change(func(svc *lb.Service) { svc.Backends = w.service(2).Backends })
	for later := time.Duration(0); w.p.SlotsInUse(w.svc.VIP) > 2; later += time.Hour {
		must(t, w.p.SweepFlows(later))
	}
	w.wantRemembered(8)
	must(t, w.p.Close())
	w.p = quietPlane(t, dir, program.FeatureNAT|program.FeatureClients)
	w.hops = hopsOf(w.p)
	w.wantRemembered(0)
	w.change(func(svc *lb.Service) { svc.Backends = w.service(4).Backends })
	w.wantHomes(w.rings(8))
}

// A trace shows a client's record and writes none.
func TestClientsTraced(t *testing.T) {
	eachClientService(t, clientPlane(t), 4, func(w *clientService) {
		client := w.visitor(0)
		ask := func(remembered bool, want lb.BackendID) dataplane.Trace {
			w.t.Helper()
			before := w.remembered()
			w.port++
			said := trace(w.t, w.p, flowPacket(w.svc.VIP, netip.AddrPortFrom(client, uint16(w.port))))
			if said.Backend == nil || said.Backend.ID != want || said.Flow.Client != remembered {
				w.t.Errorf("traced to %+v, flow %+v, want %s, remembered %t", said.Backend, said.Flow, want, remembered)
			}
			after := w.remembered()
			for key, c := range after {
				if before[key] != c {
					w.t.Errorf("the trace has written %+v", c)
				}
			}
			return said
		}
		ask(false, w.ring(client))
		home := w.begin(client)
		ask(true, home)
		for n := 4; w.ring(client) == home; n++ {
			w.grow(1)
		}
		w.wait(time.Hour)
		if said := ask(true, home); said.Ring.Backend != w.ring(client) {
			w.t.Errorf("ring %+v", said.Ring)
		}
	})
}

// A flow whose own record made room for another one is where its client was last.
func TestClientsEvictedFlows(t *testing.T) {
	p := quietPlane(t, "", program.FeatureL2DSR|program.FeatureClients)
	w := newClientService(t, p, clientCase{lb.L2DSR, false, vip4, lb.TCP}, 4)
	homes := w.arrive(20)
	w.grow(12)
	w.wait(2 * testAffinity) // its client began no flow since, and is not remembered for new ones
	if _, err := table.DeleteFlows(p.Tables, slices.Collect(maps.Keys(records(t, p)))); err != nil {
		t.Fatal(err)
	}
	for n, home := range homes {
		w.wantFlow(w.visitor(n), 2001+n, home)
	}
}

// When there are too many new clients and flows, none is recorded: each flow stays where it
// began, and the clients that are remembered where they were.
func TestTooManyNewClients(t *testing.T) {
	const clients = 20
	p := quietPlane(t, "", program.FeatureL2DSR|program.FeatureClients)
	w := newClientService(t, p, clientCase{lb.L2DSR, false, vip4, lb.TCP}, 4)
	homes := w.arrive(clients)
	w.grow(12)
	w.set(homes[0], func(b *lb.Backend) { b.Weight = 0 })
	setLimit(t, p, table.BalancerRateRATE_RECORD, ^uint64(0))
	setLimit(t, p, table.BalancerRateRATE_CLIENT, ^uint64(0))
	for n := range 3 * clients {
		id := w.sent(flowPacket(w.svc.VIP, netip.AddrPortFrom(w.visitor(n), 9000)))
		if n < clients && homes[n] != homes[0] && id != homes[n] {
			t.Errorf("client %d went to %s, was at %s", n, id, homes[n])
		}
		w.wantFlow(w.visitor(n), 9000, id)
	}
	w.wantRemembered(clients)
}

// A flood of new clients evicts none that are remembered.
func TestFloodEvictsNoClient(t *testing.T) {
	eachClientService(t, clientPlane(t), 4, func(w *clientService) {
		if w.vip.Is6() {
			return
		}
		homes := w.arrive(100)
		for n := range 4 * testCapacity.Clients {
			if n%floodRound == 0 {
				setLimit(w.t, w.p, table.BalancerRateRATE_RECORD, 0)
			}
			run(w.t, w.p, flowPacket(w.svc.VIP, clientNumber(n)))
		}
		w.grow(12)
		w.wantHomes(homes)
	})
}

// Services without a time-out write no record and look for none.
func TestClientsOnlyWithTimeout(t *testing.T) {
	p := clientPlane(t)
	special := openQuietPlane(t, testPins(t), newStaticHops()) // its program has all needed features
	for n, c := range clientCases() {
		t.Run(c.String(), func(t *testing.T) {
			w := newClientService(t, p, c, 8)
			defer w.leave()
			for _, affinity := range []lb.Affinity{lb.AffinityClient, lb.AffinityFlow} {
				w.change(func(svc *lb.Service) { svc.Affinity, svc.AffinityTimeout = affinity, 0 })
				w.arrive(10)
				w.wantRemembered(0)
			}
			another := *w.svc
			another.Port += uint16(n)
			update(t, special, &another)
			programOf(t, special)
			if f := special.Programs.Features; f&program.FeatureClients != 0 {
				t.Errorf("features %s", f)
			}
		})
	}
}

// Entries of the ring become stable again and a backend that left gives its slot
// back, though the clients that are remembered never agree with the ring.
func TestClientsDontBlockRing(t *testing.T) {
	p := quietPlane(t, "", program.FeatureL2DSR|program.FeatureClients)
	w := newClientService(t, p, clientCase{lb.L2DSR, false, vip4, lb.TCP}, 8)
	w.change(func(svc *lb.Service) { svc.IdleTimeout = lb.MinIdleTimeout })
	homes := w.arrive(20)
	w.grow(8)
	w.change(func(svc *lb.Service) { svc.Backends = svc.Backends[1:] })
	age(t, p, time.Minute)
	for n, home := range homes {
		if home != w.backend(0).ID() {
			w.begin(w.visitor(n))
		}
	}
	later := time.Minute
	for range 3 {
		must(t, errors.Join(p.Tables.Grace.Wait(t.Context(), p.Tables.Grace.Now()), p.SweepFlows(later)))
		later += time.Minute
	}
	if n := stats(t, p).Services[w.svc.VIP].Tracking.Unstable; n != 0 {
		t.Errorf("%d entries are unstable", n)
	}
	if n := p.SlotsInUse(w.svc.VIP); n != 15 {
		t.Errorf("%d slots are taken, want 15", n)
	}
}
