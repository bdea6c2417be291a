// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fuzzrand"
)

// The program picks the backend that Maglev's ring and the hash say, for every
// affinity and both families, and with one byte for a ring entry or two.
func TestRingChoice(t *testing.T) {
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
	must(t, err)
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

// tracked is a service whose flows are all recorded.
func tracked(vip netip.Addr, backends int) *lb.Service {
	svc := manyBackends(vip, backends)
	svc.Tracking = lb.TrackingFull
	return svc
}

// A successor forwards packets of all services that are pinned, and removes those that it
// prunes. (Flows and counters are in the histories of the package xdp.)
func TestPruneAdoptedService(t *testing.T) {
	dir := testPins(t)
	first := openTestPlane(t, dir, newStaticHops())
	kept, pruned := manyBackends(vip4, 8), manyBackends(vip6, 3)
	update(t, first, kept)
	update(t, first, pruned)
	must(t, first.Close())
	second := openTestPlane(t, dir, newStaticHops())
	for _, in := range [][]byte{flowPacket(kept.VIP, client4), flowPacket(pruned.VIP, client6)} {
		wantVerdict(t, second, in, xdpTX, "forward_l2dsr")
	}
	must(t, second.Prune(t.Context(), []lb.VIP{kept.VIP}))
	wantVerdict(t, second, flowPacket(kept.VIP, client4), xdpTX, "forward_l2dsr")
	wantExit(t, second, flowPacket(pruned.VIP, client6), xdpPass, "pass_not_vip")
}

// recordKey is record_key of bpf/core/hash.h.
func recordKey(s *table.BalancerSecrets, service uint32, client netip.AddrPort) uint64 {
	flow := uint64(service)<<16 | uint64(table.WirePort(client.Port()))
	address := client.Addr().As16()
	if client.Addr().Is4() {
		return s.KeySeed ^ binary.NativeEndian.Uint64(address[8:]) ^ flow
	}
	return addressKey(s, flow, address)
}

// addressKey is address_key of bpf/core/hash.h, for one address.
func addressKey(s *table.BalancerSecrets, ports uint64, address [16]byte) uint64 {
	var sums [2]uint64
	for i := range sums {
		sums[i] = ports * s.KeySecrets[i][0]
		for word := range 4 {
			sums[i] += uint64(binary.NativeEndian.Uint32(address[4*word:])) * s.KeySecrets[i][1+word]
		}
	}
	return sums[0] ^ sums[1]>>32
}

// Records are at the keys that the model says.
func TestKeysOfRecords(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		update(t, p, tracked(vip, 2))
	}
	var secrets table.BalancerSecrets
	must(t, p.Tables.Maps.Secrets.Lookup(uint32(0), &secrets))
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	wants := map[uint64]netip.AddrPort{}
	for i := range 200 {
		var address [16]byte
		binary.BigEndian.PutUint64(address[:], random.Uint64()>>3|1<<61) // global unicast
		binary.BigEndian.PutUint64(address[8:], random.Uint64())
		vip, client := vip6, netip.AddrFrom16(address)
		if i%2 == 0 {
			vip, client = vip4, netip.AddrFrom4([4]byte(address[:4]))
		}
		from := netip.AddrPortFrom(client, uint16(1+random.IntN(65535)))
		run(t, p, flowPacket(lb.VIP{Address: vip, Port: 80, Protocol: lb.TCP}, from))
		for key, flow := range records(t, p) {
			if table.Unmapped(flow.Client) == client && recordKey(&secrets, flow.Service, from) == key {
				wants[key] = from
			}
		}
	}
	if have := len(records(t, p)); have != 200 || len(wants) != 200 {
		t.Errorf("%d records, %d at their keys, want 200", have, len(wants))
	}
}

// No two clients have equal keys with every seed: flows that differ in one, two or three bits
// have different ones.
func TestKeyCollisions(t *testing.T) {
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	const bits = 128 + 30 // of the address, the service and the port
	for range 4 {
		var s table.BalancerSecrets
		for i := range s.KeySecrets {
			for j := range s.KeySecrets[i] {
				s.KeySecrets[i][j] = random.Uint64()
			}
		}
		flow, address := uint64(random.Uint32()>>2), [16]byte{}
		binary.BigEndian.PutUint64(address[:], random.Uint64())
		binary.BigEndian.PutUint64(address[8:], random.Uint64())
		want := addressKey(&s, flow, address)
		flipped := func(places ...int) uint64 {
			flow, address := flow, address
			for _, n := range places {
				if n < 128 {
					address[n/8] ^= 1 << (n % 8)
				} else {
					flow ^= 1 << (n - 128)
				}
			}
			return addressKey(&s, flow, address)
		}
		for a := range bits {
			for b := range a + 1 {
				for c := range b + 1 {
					if places := slices.Compact([]int{a, b, c}); flipped(places...) == want {
						t.Fatalf("bits %d don't matter", places)
					}
				}
			}
		}
	}
}

// twoClients are a pair whose addresses differ in the highest bit of some bytes, which a chain
// of odd multipliers and folds doesn't distinguish, whatever its seed.
func twoClients() [2]netip.AddrPort {
	other := client6.Addr().As16()
	for _, i := range []int{7, 11, 15} {
		other[i] ^= 0x80
	}
	return [2]netip.AddrPort{client6, netip.AddrPortFrom(netip.AddrFrom16(other), client6.Port())}
}

// Two clients have a session each.
func TestKeysOfTwoClients(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, keep := range []bool{false, true} {
		first := natCaseOf(vip6, lb.TCP)
		first.keep = keep
		second := first
		first.client, second.client = twoClients()[0], twoClients()[1]
		update(t, p, first.service())
		var ports [2]uint16
		for i, c := range []natCase{first, second} {
			_, out := run(t, p, c.fromClient(tcpSYN).build())
			ports[i] = sourcePort(t, out)
			exchange(t, p, c, ports[i], "sSA", "cA")
		}
		exchange(t, p, first, ports[0], "cA", "sA")
		exchange(t, p, second, ports[1], "cA", "sA")
		endAllSessions(t, p)
		remove(t, p, first.vip)
	}
}

// Two clients have a record each: packets of one don't change the other's record.
func TestRecordsOfTwoClients(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := tracked(vip6, 64)
	update(t, p, svc)
	var homes [2]lb.BackendID
	for i, client := range twoClients() {
		homes[i] = synOrAck(t, p, svc, client, true)
		synOrAck(t, p, svc, client, false)
	}
	if have := len(records(t, p)); have != 2 {
		t.Errorf("%d records, want 2", have)
	}
	for i, client := range twoClients() {
		if at := synOrAck(t, p, svc, client, false); at != homes[i] {
			t.Errorf("client %s is at %s, want %s", client, at, homes[i])
		}
	}
}

// synOrAck sends a segment and returns the backend that gets it.
func synOrAck(t *testing.T, p *xdp.Unattached, svc *lb.Service, client netip.AddrPort, syn bool) lb.BackendID {
	t.Helper()
	frame := tcpSegment(svc.VIP, client, func(tcp *layers.TCP) { tcp.SYN, tcp.ACK = syn, !syn })
	verdict, out := run(t, p, frame)
	id, _ := receiver(t, verdict, out, svc.VIP, svc.Backends)
	return id
}

// A record of another flow at a flow's key is none: it isn't used and not overwritten.
func TestRecordOfAnotherFlow(t *testing.T) {
	p := quietPlane(t, "", program.FeatureL2DSR)
	svc := tracked(vip4, 64)
	update(t, p, svc)
	client := netip.AddrPortFrom(client4.Addr(), 1000)
	at := func(client netip.AddrPort, syn bool) lb.BackendID { return synOrAck(t, p, svc, client, syn) }
	home := at(client, true)
	key := slices.Collect(maps.Keys(records(t, p)))[0]
	for _, other := range []netip.AddrPort{
		netip.AddrPortFrom(client.Addr(), client.Port()+1), netip.AddrPortFrom(client.Addr().Next(), client.Port()),
	} {
		_, err := table.DeleteFlows(p.Tables, slices.Collect(maps.Keys(records(t, p))))
		must(t, err)
		if at(other, true) == home {
			t.Fatalf("%s and %s are on one backend", client, other)
		}
		for others, flow := range records(t, p) {
			must(t, errors.Join(p.Tables.Maps.FlowsPending.Delete(others), p.Tables.Maps.Flows.Put(key, flow)))
			for _, syn := range []bool{true, false, false} {
				if got := at(client, syn); got != home {
					t.Errorf("sent to %s, want %s", got, home)
				}
			}
			if left := records(t, p); len(left) != 1 || left[key] != flow {
				t.Errorf("records %+v, want %+v", left, flow)
			}
		}
	}
}
