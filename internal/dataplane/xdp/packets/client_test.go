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

// clientsWorld is a data plane with such a service.
type clientsWorld struct {
	clientCase
	t    *testing.T
	p    *xdp.Unattached
	hops *staticHops
	svc  *lb.Service
	port int // of the flow that began last
}

func newClientsWorld(t *testing.T, p *xdp.Unattached, c clientCase, backends int) *clientsWorld {
	hops := p.Hops.(*staticHops)
	w := &clientsWorld{clientCase: c, t: t, p: p, hops: hops, svc: c.service(backends), port: 2000}
	if found := w.svc.Check(); len(found) > 0 {
		t.Fatal(found)
	}
	update(t, p, w.svc)
	return w
}

// leave ends the service, whose clients are forgotten then.
func (w *clientsWorld) leave() {
	w.t.Helper()
	clear(w.hops.lost)
	remove(w.t, w.p, w.svc.VIP)
	endAllSessions(w.t, w.p)
	if err := w.p.SweepClients(); err != nil || len(w.remembered()) > 0 {
		w.t.Errorf("%d clients are left of a deleted service: %v", len(w.remembered()), err)
	}
}

// clientFeatures are what the services of clientCases need.
const clientFeatures = program.FeatureL2DSR | program.FeatureNAT | program.FeatureDSR | program.FeatureClients

// quietPlane is a plane whose grace periods take no time, with one program for all cases.
func quietPlane(t *testing.T, dir string, features program.Features) *xdp.Unattached {
	p := openQuietPlane(t, dir, newStaticHops())
	p.Programs.Recount(0, features)
	return p
}

// change updates the service, which others have seen as it was.
func (w *clientsWorld) change(do func(svc *lb.Service)) {
	w.t.Helper()
	next := *w.svc
	next.Backends = slices.Clone(next.Backends)
	do(&next)
	w.svc = &next
	update(w.t, w.p, w.svc)
}

// grow adds so many backends, which take their parts of the ring from the others.
func (w *clientsWorld) grow(by int) {
	w.t.Helper()
	w.change(func(svc *lb.Service) {
		for n := range by {
			svc.Backends = append(svc.Backends, w.backend(len(w.svc.Backends)+n))
		}
	})
}

// set changes one backend.
func (w *clientsWorld) set(id lb.BackendID, do func(*lb.Backend)) {
	w.t.Helper()
	w.change(func(svc *lb.Service) {
		do(&svc.Backends[slices.IndexFunc(svc.Backends, func(b lb.Backend) bool { return b.ID() == id })])
	})
}

// visitor is the nth client's address.
func (w *clientsWorld) visitor(n int) netip.Addr {
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
func (w *clientsWorld) sent(in []byte) lb.BackendID {
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
func (w *clientsWorld) begin(client netip.Addr) lb.BackendID {
	w.t.Helper()
	setLimit(w.t, w.p, table.BalancerRateRATE_CLIENT, 0)
	w.port++
	id := w.sent(flowPacket(w.svc.VIP, netip.AddrPortFrom(client, uint16(w.port))))
	confirmSessions(w.t, w.p)
	return id
}

// goOn sends another packet of the flow that began with that port.
func (w *clientsWorld) goOn(client netip.Addr, port int) lb.BackendID {
	w.t.Helper()
	from := netip.AddrPortFrom(client, uint16(port))
	if w.protocol == lb.UDP {
		return w.sent(flowPacket(w.svc.VIP, from))
	}
	return w.sent(tcpSegment(w.svc.VIP, from, func(*layers.TCP) {}))
}

// ring is the backend that the ring says for a client.
func (w *clientsWorld) ring(client netip.Addr) lb.BackendID {
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
	if err != nil {
		w.t.Fatal(err)
	}
	hash := dataplanetest.FlowHash(1, w.svc.VIP, netip.AddrPortFrom(client, 0), lb.AffinityClient)
	return ring[entries[hash>>32*uint64(size)>>32]].ID
}

// rings are the backends that the ring says for so many clients.
func (w *clientsWorld) rings(clients int) (ids []lb.BackendID) {
	w.t.Helper()
	for n := range clients {
		ids = append(ids, w.ring(w.visitor(n)))
	}
	return ids
}

// wait makes all records of clients older.
func (w *clientsWorld) wait(by time.Duration) {
	w.t.Helper()
	for key, c := range w.remembered() {
		c.Seen -= uint64(by)
		if err := w.p.Tables.Maps.Clients.Put(key, c); err != nil {
			w.t.Fatal(err)
		}
	}
}

// remembered are the records of clients.
func (w *clientsWorld) remembered() map[uint64]table.BalancerClient {
	w.t.Helper()
	all := map[uint64]table.BalancerClient{}
	err := table.EachRecord(w.p.Tables.Maps.Clients, func(key uint64, c *table.BalancerClient) { all[key] = *c })
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// Clients that came before backends came and went stay where they were, new ones go
// where the ring says, and so do those that were away for the time-out.
func TestClientsStay(t *testing.T) {
	const clients = 24
	p := quietPlane(t, testPins(t), clientFeatures)
	for _, c := range clientCases() {
		t.Run(c.String(), func(t *testing.T) {
			w := newClientsWorld(t, p, c, 8)
			defer w.leave()
			homes := w.rings(clients)
			for n, home := range homes {
				if id := w.begin(w.visitor(n)); id != home {
					t.Errorf("client %d went to %s, the ring says %s", n, id, home)
				}
			}
			w.grow(16)
			moved, others := w.rings(2*clients), 0
			for n, home := range homes {
				if id := w.begin(w.visitor(n)); id != home {
					t.Errorf("client %d went to %s, was at %s", n, id, home)
				}
				if moved[n] != home {
					others++
				}
			}
			if others == 0 {
				t.Fatal("the ring hasn't changed for any client")
			}
			for n := clients; n < 2*clients; n++ {
				if id := w.begin(w.visitor(n)); id != moved[n] {
					t.Errorf("new client %d went to %s, the ring says %s", n, id, moved[n])
				}
			}
			w.wait(testAffinity - time.Minute)
			for n := range clients / 2 {
				if id := w.begin(w.visitor(n)); id != homes[n] {
					t.Errorf("client %d went to %s before its time was over, was at %s", n, id, homes[n])
				}
			}
			w.wait(2 * time.Minute)
			for n, home := range homes {
				want := home // seen again a moment ago
				if n >= clients/2 {
					want = moved[n]
				}
				if id := w.begin(w.visitor(n)); id != want {
					t.Errorf("client %d went to %s, want %s", n, id, want)
				}
			}
		})
	}
}

// A client whose backend takes no new flows gets another one and stays there, also
// when the first one is back; flows that it has stay where they are.
func TestClientsBackendDrains(t *testing.T) {
	p := quietPlane(t, testPins(t), clientFeatures)
	for _, c := range clientCases() {
		t.Run(c.String(), func(t *testing.T) {
			w := newClientsWorld(t, p, c, 8)
			defer w.leave()
			client := w.visitor(0)
			home := w.begin(client)
			port := w.port
			w.set(home, func(b *lb.Backend) { b.Weight = 0 })
			next := w.begin(client)
			if want := w.ring(client); next != want || next == home {
				t.Fatalf("from a drained backend to %s, the ring says %s", next, want)
			}
			later := w.port
			if id := w.goOn(client, port); id != home {
				t.Errorf("the flow that was there moved from %s to %s", home, id)
			}
			w.set(home, func(b *lb.Backend) { b.Weight = 1 })
			if id := w.begin(client); id != next {
				t.Errorf("went to %s when the drained backend was back, was at %s", id, next)
			}
			for flow, want := range map[int]lb.BackendID{port: home, later: next} {
				if id := w.goOn(client, flow); id != want {
					t.Errorf("flow %d moved from %s to %s", flow, want, id)
				}
			}
		})
	}
}

// A backend that is gone, unhealthy or not reachable loses its clients for good.
func TestClientsBackendGoes(t *testing.T) {
	p := quietPlane(t, testPins(t), clientFeatures)
	for name, do := range map[string]func(w *clientsWorld, home lb.BackendID, goes bool){
		"unhealthy": func(w *clientsWorld, home lb.BackendID, goes bool) {
			w.set(home, func(b *lb.Backend) { b.Down = goes })
		},
		"lost": func(w *clientsWorld, home lb.BackendID, goes bool) {
			for _, b := range w.svc.Backends {
				if b.ID() == home {
					w.hops.lost[way(b)] = goes
				}
			}
			w.change(func(*lb.Service) {})
		},
		"removed": func(w *clientsWorld, home lb.BackendID, goes bool) {
			w.change(func(svc *lb.Service) {
				if goes {
					svc.Backends = slices.DeleteFunc(svc.Backends, func(b lb.Backend) bool { return b.ID() == home })
				} else {
					svc.Backends = w.service(8).Backends
				}
			})
		},
	} {
		for _, c := range clientCases() {
			t.Run(name+"/"+c.String(), func(t *testing.T) {
				w := newClientsWorld(t, p, c, 8)
				defer w.leave()
				client := w.visitor(3)
				home := w.begin(client)
				do(w, home, true)
				next := w.begin(client)
				if want := w.ring(client); next != want || next == home {
					t.Fatalf("went to %s, was at %s, the ring says %s", next, home, want)
				}
				do(w, home, false)
				if id := w.begin(client); id != next {
					t.Errorf("went to %s when its first backend was back, was at %s", id, next)
				}
			})
		}
	}
}

// Without a backend for new flows a client gets none, whatever is remembered.
func TestClientsWithoutBackends(t *testing.T) {
	p := quietPlane(t, testPins(t), clientFeatures)
	for _, c := range clientCases() {
		t.Run(c.String(), func(t *testing.T) {
			w := newClientsWorld(t, p, c, 3)
			defer w.leave()
			client := w.visitor(0)
			home := w.begin(client)
			w.change(func(svc *lb.Service) {
				for i := range svc.Backends {
					svc.Backends[i].Weight = 0
				}
			})
			if id := w.begin(client); id.IsValid() {
				t.Errorf("a new flow went to %s, which is drained", id)
			}
			w.change(func(svc *lb.Service) {
				for i := range svc.Backends {
					svc.Backends[i].Weight = 1
				}
			})
			if id := w.begin(client); id != home {
				t.Errorf("went to %s, was at %s", id, home)
			}
		})
	}
}
