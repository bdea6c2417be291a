// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fuzzrand"
)

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
		svc := manyBackends(vip, 2)
		svc.Tracking = lb.TrackingFull
		update(t, p, svc)
	}
	var secrets table.BalancerSecrets
	if err := p.Tables.Maps.Secrets.Lookup(uint32(0), &secrets); err != nil {
		t.Fatal(err)
	}
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
func TestKeysDiffer(t *testing.T) {
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
			if flipped(a) == want {
				t.Fatalf("bit %d doesn't matter", a)
			}
			for b := range a {
				if flipped(a, b) == want {
					t.Fatalf("bits %d and %d don't matter", a, b)
				}
				for c := range b {
					if flipped(a, b, c) == want {
						t.Fatalf("bits %d, %d and %d don't matter", a, b, c)
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

// Two clients have a record each: packets of one leave that of the other as it is.
func TestRecordsOfTwoClients(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := manyBackends(vip6, 64)
	svc.Tracking = lb.TrackingFull
	update(t, p, svc)
	send := func(client netip.AddrPort, syn bool) []byte {
		frame := tcpSegment(svc.VIP, client, func(tcp *layers.TCP) { tcp.SYN, tcp.ACK = syn, !syn })
		_, out := run(t, p, frame)
		return out
	}
	var homes [2][]byte
	for i, client := range twoClients() {
		homes[i] = send(client, true)
		send(client, false)
	}
	if have := len(records(t, p)); have != 2 {
		t.Errorf("%d records, want 2", have)
	}
	for i, client := range twoClients() {
		if out := send(client, false); !bytes.Equal(out[:12], homes[i][:12]) {
			t.Errorf("client %s: frame differs:\n%s", client, cmp.Diff(dump(homes[i]), dump(out)))
		}
	}
}

// A record of another flow at a flow's key is none: it isn't used and not overwritten.
func TestRecordOfAnotherFlow(t *testing.T) {
	p := quietPlane(t, testPins(t), program.FeatureL2DSR)
	svc := manyBackends(vip4, 64)
	svc.Tracking = lb.TrackingFull
	update(t, p, svc)
	client := netip.AddrPortFrom(client4.Addr(), 1000)
	at := func(client netip.AddrPort, syn bool) lb.BackendID {
		frame := tcpSegment(svc.VIP, client, func(tcp *layers.TCP) { tcp.SYN, tcp.ACK = syn, !syn })
		verdict, out := run(t, p, frame)
		id, _ := receiver(t, verdict, out, svc.VIP, svc.Backends)
		return id
	}
	home := at(client, true)
	key := slices.Collect(maps.Keys(records(t, p)))[0]
	for _, other := range []netip.AddrPort{
		netip.AddrPortFrom(client.Addr(), client.Port()+1), netip.AddrPortFrom(client.Addr().Next(), client.Port()),
	} {
		if _, err := table.DeleteFlows(p.Tables, slices.Collect(maps.Keys(records(t, p)))); err != nil {
			t.Fatal(err)
		}
		if at(other, true) == home {
			t.Fatalf("%s and %s are on one backend", client, other)
		}
		for others, flow := range records(t, p) {
			if err := errors.Join(p.Tables.Maps.FlowsPending.Delete(others), p.Tables.Maps.Flows.Put(key, flow)); err != nil {
				t.Fatal(err)
			}
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
