// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"context"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// The program picks the backend that Maglev's ring and the hash say, for every
// affinity and both families, and with one byte for a ring entry or two.
func TestFlowsFollowTheRing(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, affinity := range []lb.Affinity{lb.AffinityFlow, lb.AffinityClient} {
			for _, backends := range []int{16, 127, 128, 16} {
				svc := manyBackends(vip, backends)
				svc.Affinity = affinity
				update(t, p, svc)
				testRing(t, p, svc)
			}
			remove(t, p, manyBackends(vip, 0).VIP)
		}
	}
}

func testRing(t *testing.T, p *xdp.Unattached, svc *lb.Service) {
	t.Helper()
	var ids []maglev.Backend
	for _, b := range svc.Backends {
		ids = append(ids, maglev.Backend{ID: b.ID(), Weight: b.Weight})
	}
	ring, err := maglev.Build(1, maglev.Size(ids), ids)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		client := netip.AddrPortFrom(svc.VIP.Address, uint16(1024+i)) // any address will do
		slot := dataplanetest.FlowHash(1, svc.VIP, client, svc.Affinity) >> 32 * uint64(len(ring)) >> 32
		want := svc.Backends[ring[slot]].ID()
		if got, _ := chosen(t, p, svc.VIP, client, svc.Backends); got != want {
			t.Fatalf("%s %s, %d backends: flow %s went to %s, want %s", svc.VIP, svc.Affinity, len(svc.Backends), client, got, want)
		}
	}
}

func manyBackends(vip netip.Addr, n int) *lb.Service {
	svc := &lb.Service{Name: "web", VIP: lb.VIP{Address: vip, Port: 80, Protocol: lb.TCP}, Forward: lb.L2DSR, MinHealthy: 1}
	for i := range n {
		address := netip.AddrFrom4([4]byte{10, 0, byte(2 + i/250), byte(1 + i%250)})
		svc.Backends = append(svc.Backends, lb.Backend{Address: address, Port: 80, Weight: 1})
	}
	return svc
}

// A successor takes over what is pinned: packets go on to the same backends
// before, during and after the change of agents, and counters go on.
func TestAdopt(t *testing.T) {
	dir := testPins(t)
	first := openTestPlane(t, dir, newStaticHops())
	svc, gone := manyBackends(vip4, 8), manyBackends(vip6, 3)
	update(t, first, svc)
	update(t, first, gone)
	flows := map[netip.AddrPort]lb.BackendID{}
	for i := range 200 {
		client := netip.AddrPortFrom(client4.Addr(), uint16(2000+i))
		flows[client], _ = chosen(t, first, svc.VIP, client, svc.Backends)
	}
	fewer := *svc
	fewer.Backends = svc.Backends[1:] // so that traffic of a backend that left is remembered
	update(t, first, &fewer)
	update(t, first, svc)
	before := stats(t, first).Services[svc.VIP].Traffic
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	second := openTestPlane(t, dir, newStaticHops())
	if got := stats(t, second).Services[svc.VIP].Traffic; got.Packets > before.Packets || got.Packets == 0 {
		t.Errorf("traffic %+v after the change of agents, %+v before", got, before)
	}
	check := func(when string) {
		t.Helper()
		for client, want := range flows {
			if got, _ := chosen(t, second, svc.VIP, client, svc.Backends); got != want {
				t.Fatalf("%s: flow %s went to %s, want %s", when, client, got, want)
			}
		}
	}
	check("adopted")
	update(t, second, svc)
	check("updated")
	if err := second.Prune(context.Background(), []lb.VIP{svc.VIP}); err != nil {
		t.Fatal(err)
	}
	check("pruned")
	if verdict, _ := run(t, second, flowPacket(gone.VIP, client6)); verdict != xdpPass {
		t.Errorf("a pruned service's packet: verdict %d, want pass", verdict)
	}
}
