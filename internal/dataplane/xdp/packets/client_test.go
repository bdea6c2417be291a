// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// testAffinity is how long clients are remembered in these tests.
const testAffinity = 3 * time.Hour

// clientCase is a service that remembers clients.
type clientCase struct {
	forward  lb.Forward
	relayed  bool // with DSR: backends are other nodes'
	vip      netip.Addr
	protocol lb.Protocol
}

func (c clientCase) String() string {
	name := fmt.Sprintf("%s/%s/%s", c.forward, family(c.vip), c.protocol)
	if c.relayed {
		name += "/relayed"
	}
	return name
}

// clientCases are the ways in which a backend is picked: by the flow table, by
// sessions, and by both.
func clientCases() (cases []clientCase) {
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			for _, forward := range []lb.Forward{lb.L2DSR, lb.NAT, lb.DSR} {
				cases = append(cases, clientCase{forward, false, vip, protocol})
			}
			cases = append(cases, clientCase{lb.DSR, true, vip, protocol})
		}
	}
	return cases
}

// backend is the nth backend.
func (c clientCase) backend(n int) lb.Backend {
	address := func(subnet byte) netip.Addr {
		if c.vip.Is6() {
			return netip.AddrFrom16([16]byte{0: 0xfd, 3: subnet, 15: byte(0x21 + n)})
		}
		return netip.AddrFrom4([4]byte{10, 0, subnet, byte(21 + n)})
	}
	b := lb.Backend{Address: address(2), Port: 80, Weight: 1}
	if c.relayed {
		b.Node = address(3)
	}
	return b
}

func (c clientCase) service(backends int) *lb.Service {
	svc := &lb.Service{
		Name: "web", VIP: lb.VIP{Address: c.vip, Port: 80, Protocol: c.protocol}, Forward: c.forward,
		Affinity: lb.AffinityClient, AffinityTimeout: testAffinity, MinHealthy: 1,
	}
	for n := range backends {
		svc.Backends = append(svc.Backends, c.backend(n))
	}
	return svc
}

// clientService is a data plane with such a service.
type clientService struct {
	clientCase
	t    *testing.T
	p    *xdp.Unattached
	hops *staticHops
	svc  *lb.Service
	port int // of the flow that began last
}

func newClientService(t *testing.T, p *xdp.Unattached, c clientCase, backends int) *clientService {
	hops := hopsOf(p)
	w := &clientService{clientCase: c, t: t, p: p, hops: hops, svc: c.service(backends), port: 2000}
	if found := w.svc.Check(); len(found) > 0 {
		t.Fatal(found)
	}
	update(t, p, w.svc)
	return w
}

// eachClientService runs a test for the service of each case.
func eachClientService(t *testing.T, p *xdp.Unattached, backends int, test func(w *clientService)) {
	t.Helper()
	for _, c := range clientCases() {
		t.Run(c.String(), func(t *testing.T) {
			w := newClientService(t, p, c, backends)
			defer w.leave()
			test(w)
		})
	}
}

// leave ends the service, whose clients are forgotten then.
func (w *clientService) leave() {
	w.t.Helper()
	clear(w.hops.lost)
	remove(w.t, w.p, w.svc.VIP)
	endAllSessions(w.t, w.p)
	if err := w.p.SweepClients(); err != nil || len(w.remembered()) > 0 {
		w.t.Errorf("%d clients are left of a deleted service: %v", len(w.remembered()), err)
	}
}

// clientFeatures are needed by the services of clientCases.
const clientFeatures = program.FeatureL2DSR | program.FeatureNAT | program.FeatureDSR | program.FeatureClients

// clientPlane is a plane for the services of clientCases.
func clientPlane(t *testing.T) *xdp.Unattached { return quietPlane(t, "", clientFeatures) }

// quietPlane is a plane whose grace periods take no time, with one program for all cases: with pins in
// dir or, without, the one that tests share.
func quietPlane(t *testing.T, dir string, features program.Features) *xdp.Unattached {
	t.Helper()
	var p *xdp.Unattached
	if dir == "" {
		p, _ = newTestPlane(t)
	} else {
		p = openQuietPlane(t, dir, newStaticHops())
	}
	p.Programs.Recount(0, features)
	return p
}

// change updates the service, which others have seen as it was.
func (w *clientService) change(do func(svc *lb.Service)) {
	w.t.Helper()
	next := *w.svc
	next.Backends = slices.Clone(next.Backends)
	do(&next)
	w.svc = &next
	update(w.t, w.p, w.svc)
}

// grow adds so many backends, which take their parts of the ring from the others.
func (w *clientService) grow(by int) {
	w.t.Helper()
	w.change(func(svc *lb.Service) {
		for n := range by {
			svc.Backends = append(svc.Backends, w.backend(len(w.svc.Backends)+n))
		}
	})
}

// set changes one backend.
func (w *clientService) set(id lb.BackendID, do func(*lb.Backend)) {
	w.t.Helper()
	w.change(func(svc *lb.Service) {
		do(&svc.Backends[slices.IndexFunc(svc.Backends, func(b lb.Backend) bool { return b.ID() == id })])
	})
}

// visitor is the nth client's address.
func (w *clientService) visitor(n int) netip.Addr {
	a := client4.Addr()
	if w.vip.Is6() {
		a = client6.Addr()
	}
	for range n {
		a = a.Next()
	}
	return a
}

// way is whose neighbour entry says how a backend is reached.
func way(b lb.Backend) netip.Addr {
	if b.Node.IsValid() {
		return b.Node
	}
	return b.Address
}

// sent is the backend that gets a frame; the zero ID if none does.
func (w *clientService) sent(in []byte) lb.BackendID {
	w.t.Helper()
	verdict, out := run(w.t, w.p, in)
	if verdict != xdpTX {
		return lb.BackendID{}
	}
	for n := range 64 {
		if b := w.backend(n); lb.MAC(out[:6]) == macOf(way(b)) {
			return b.ID()
		}
	}
	w.t.Fatalf("frame for an unknown backend: % x", out[:14])
	return lb.BackendID{}
}

// begin begins a flow of a client, as if no other was new, and returns its backend.
func (w *clientService) begin(client netip.Addr) lb.BackendID {
	w.t.Helper()
	setLimit(w.t, w.p, table.BalancerRateRATE_CLIENT, 0)
	w.port++
	id := w.sent(flowPacket(w.svc.VIP, netip.AddrPortFrom(client, uint16(w.port))))
	confirmSessions(w.t, w.p)
	return id
}

// goOn sends another packet of the flow that began with that port.
func (w *clientService) goOn(client netip.Addr, port int) lb.BackendID {
	w.t.Helper()
	from := netip.AddrPortFrom(client, uint16(port))
	if w.protocol == lb.UDP {
		return w.sent(flowPacket(w.svc.VIP, from))
	}
	return w.sent(tcpSegment(w.svc.VIP, from, func(*layers.TCP) {}))
}

// ring is the backend that the ring says for a client.
func (w *clientService) ring(client netip.Addr) lb.BackendID {
	w.t.Helper()
	var ring []maglev.Backend
	for _, b := range w.svc.Backends {
		ring = append(ring, maglev.Backend{ID: b.ID(), Weight: b.Weight})
	}
	slices.SortFunc(ring, func(a, b maglev.Backend) int { return a.ID.Compare(b.ID) })
	size := maglev.Size(ring)
	for _, b := range w.svc.Backends {
		if b.Down || w.hops.lost[way(b)] {
			ring[slices.IndexFunc(ring, func(r maglev.Backend) bool { return r.ID == b.ID() })].Weight = 0
		}
	}
	entries, err := maglev.Build(1, size, ring)
	must(w.t, err)
	hash := dataplanetest.FlowHash(1, w.svc.VIP, netip.AddrPortFrom(client, 0), lb.AffinityClient)
	return ring[entries[hash>>32*uint64(size)>>32]].ID
}

// rings are the backends that the ring says for so many clients.
func (w *clientService) rings(clients int) (ids []lb.BackendID) {
	w.t.Helper()
	for n := range clients {
		ids = append(ids, w.ring(w.visitor(n)))
	}
	return ids
}

// wait makes all records of clients older.
func (w *clientService) wait(by time.Duration) {
	w.t.Helper()
	for key, c := range w.remembered() {
		c.Seen -= uint64(by)
		must(w.t, w.p.Tables.Maps.Clients.Put(key, c))
	}
}

// remembered are the records of clients.
func (w *clientService) remembered() map[uint64]table.BalancerClient {
	w.t.Helper()
	all := map[uint64]table.BalancerClient{}
	err := table.EachRecord(w.p.Tables.Maps.Clients, func(key uint64, c *table.BalancerClient) { all[key] = *c })
	must(w.t, err)
	return all
}

// arrive begins a flow of each of so many clients and returns their backends.
func (w *clientService) arrive(clients int) (homes []lb.BackendID) {
	w.t.Helper()
	for n := range clients {
		homes = append(homes, w.begin(w.visitor(n)))
	}
	return homes
}

// wantHomes checks the backends of new flows of the clients from the first one on.
func (w *clientService) wantHomes(homes []lb.BackendID, first ...int) {
	w.t.Helper()
	for n, home := range homes {
		for _, before := range first {
			n += before
		}
		if id := w.begin(w.visitor(n)); id != home {
			w.t.Errorf("client %d went to %s, want %s", n, id, home)
		}
	}
}

// wantRemembered checks the number of records.
func (w *clientService) wantRemembered(clients int) {
	w.t.Helper()
	if have := len(w.remembered()); have != clients {
		w.t.Errorf("%d clients are remembered, want %d", have, clients)
	}
}

// wantMoved checks that new flows of a client go where the ring says, and returns to which
// backend.
func (w *clientService) wantMoved(client netip.Addr, from lb.BackendID) lb.BackendID {
	w.t.Helper()
	next := w.begin(client)
	if want := w.ring(client); next != want || next == from {
		w.t.Fatalf("from %s to %s, the ring says %s", from, next, want)
	}
	return next
}

// wantFlow checks that the flow that began with a port is at a backend.
func (w *clientService) wantFlow(client netip.Addr, port int, home lb.BackendID) {
	w.t.Helper()
	if id := w.goOn(client, port); id != home {
		w.t.Errorf("flow %d of %s moved from %s to %s", port, client, home, id)
	}
}

// Clients that came before backends came and went stay where they were, new ones go
// where the ring says, and so do those that were away for the time-out.
func TestClientsStay(t *testing.T) {
	const clients = 24
	eachClientService(t, clientPlane(t), 8, func(w *clientService) {
		homes := w.rings(clients)
		w.wantHomes(homes)
		w.grow(16)
		moved := w.rings(2 * clients)
		w.wantHomes(homes)
		if slices.Equal(moved[:clients], homes) {
			w.t.Fatal("the ring hasn't changed for any client")
		}
		w.wantHomes(moved[clients:], clients)
		w.wait(testAffinity - time.Minute)
		w.wantHomes(homes[:clients/2])
		w.wait(2 * time.Minute)
		w.wantHomes(slices.Concat(homes[:clients/2], moved[clients/2:clients])) // half of them were seen a moment ago
	})
}

// A client whose backend takes no new flows gets another one and stays there, also
// when the first one is back; flows that it has stay where they are.
func TestClientsBackendDrains(t *testing.T) {
	eachClientService(t, clientPlane(t), 8, func(w *clientService) {
		client := w.visitor(0)
		home := w.begin(client)
		port := w.port
		w.set(home, func(b *lb.Backend) { b.Weight = 0 })
		next := w.wantMoved(client, home)
		later := w.port
		w.wantFlow(client, port, home)
		w.set(home, func(b *lb.Backend) { b.Weight = 1 })
		w.wantHomes([]lb.BackendID{next})
		w.wantFlow(client, port, home)
		w.wantFlow(client, later, next)
	})
}

// A backend that was removed, is unhealthy or not reachable loses its clients for good.
func TestClientsBackendRemoved(t *testing.T) {
	p := clientPlane(t)
	for name, set := range map[string]func(w *clientService, home lb.BackendID, usable bool){
		"unhealthy": func(w *clientService, home lb.BackendID, usable bool) {
			w.set(home, func(b *lb.Backend) { b.Down = !usable })
		},
		"lost": func(w *clientService, home lb.BackendID, usable bool) {
			w.set(home, func(b *lb.Backend) { w.hops.lost[way(*b)] = !usable })
		},
		"removed": func(w *clientService, home lb.BackendID, usable bool) {
			w.change(func(svc *lb.Service) {
				svc.Backends = w.service(8).Backends
				if !usable {
					svc.Backends = slices.DeleteFunc(svc.Backends, func(b lb.Backend) bool { return b.ID() == home })
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachClientService(t, p, 8, func(w *clientService) {
				home := w.begin(w.visitor(0))
				set(w, home, false)
				next := w.wantMoved(w.visitor(0), home)
				set(w, home, true)
				w.wantHomes([]lb.BackendID{next})
			})
		})
	}
}

// Without a backend for new flows a client gets none, whatever is remembered.
func TestClientsWithoutBackends(t *testing.T) {
	eachClientService(t, clientPlane(t), 3, func(w *clientService) {
		weigh := func(weight int) {
			w.change(func(svc *lb.Service) {
				for i := range svc.Backends {
					svc.Backends[i].Weight = weight
				}
			})
		}
		homes := w.arrive(1)
		weigh(0)
		w.wantHomes([]lb.BackendID{{}})
		weigh(1)
		w.wantHomes(homes)
	})
}
