// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// flowCount is the number of flows of a test: enough for each of eight backends to get one (the
// odds against it are below 10^-13, and below 10^-6 in short mode, meant for emulated processors).
func flowCount() int {
	if testing.Short() {
		return 128
	}
	return 256
}

// client returns the source of the ith flow of the VIP's family. IPVS adds address and port
// before it hashes them: the port grows by more than the address.
func client(vip lb.VIP, i int) netip.AddrPort {
	address := netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
	if vip.Address.Is6() {
		sixteen := netip.MustParseAddr("2001:db8:c::").As16()
		sixteen[15] = byte(i)
		address = netip.AddrFrom16(sixteen)
	}
	return netip.AddrPortFrom(address, uint16(20000+101*i))
}

// flows sends a packet of each flow and returns where they went. All must go
// somewhere.
func (s *suite) flows(vip lb.VIP) []lb.BackendID {
	s.Helper()
	went := make([]lb.BackendID, flowCount())
	for i := range went {
		id, forwarded := s.probe(vip, client(vip, i))
		if !forwarded {
			s.Fatalf("the packet of %s to %s was not forwarded", client(vip, i), vip)
		}
		went[i] = id
	}
	return went
}

// wantFlows checks that flows go where they went before.
func (s *suite) wantFlows(vip lb.VIP, before []lb.BackendID) {
	s.Helper()
	moved := 0
	for i, id := range s.flows(vip) {
		if id != before[i] {
			moved++
		}
	}
	if moved > 0 {
		s.Errorf("%d of %d flows to %s moved", moved, flowCount(), vip)
	}
}

// wantOnly checks that all flows go to one backend.
func (s *suite) wantOnly(vip lb.VIP, want lb.BackendID) {
	s.Helper()
	for _, id := range s.flows(vip) {
		if id != want {
			s.Fatalf("a flow to %s went to %s, want %s", vip, id, want)
		}
	}
}

// wantNoTraffic checks that nothing is forwarded for vip.
func (s *suite) wantNoTraffic(vip lb.VIP) {
	s.Helper()
	for i := range 8 {
		if id, forwarded := s.probe(vip, client(vip, i)); forwarded {
			s.Fatalf("a packet to %s was forwarded to %s, want none", vip, id)
		}
	}
}

func sameFlow(s *suite) {
	for _, vip := range []lb.VIP{vip(1), vip6(1)} {
		s.update(s.service(vip, 1, 1, 1, 1, 1))
		s.wantFlows(vip, s.flows(vip))
	}
}

// affinityClient checks that the port of a client has no meaning.
func affinityClient(s *suite) {
	byClient := s.service(vip(2), 1, 1, 1, 1, 1)
	byClient.Affinity = lb.AffinityClient
	s.update(byClient)
	s.wantTogether(vip(2), client(vip(2), 1).Addr())
}

// wantTogether checks that all flows of a client go to one backend, and returns it.
func (s *suite) wantTogether(vip lb.VIP, address netip.Addr) lb.BackendID {
	s.Helper()
	first, _ := s.probe(vip, netip.AddrPortFrom(address, 20000))
	for port := uint16(20001); port < 20064; port++ {
		if id, _ := s.probe(vip, netip.AddrPortFrom(address, port)); id != first {
			s.Fatalf("%s: port %d went to %s, another to %s", address, port, id, first)
		}
	}
	return first
}

func removedGetsNothing(s *suite) {
	svc := s.service(vip(1), 1, 1, 1, 1)
	s.update(svc)
	removed := svc.Backends[3].ID()
	before := s.flows(svc.VIP)
	for _, weights := range [][]int{{1, 1, 1, 0}, {1, 1, 1}} {
		s.update(s.service(svc.VIP, weights...))
		stayed, moved := 0, 0
		for i, id := range s.flows(svc.VIP) {
			switch {
			case id == removed:
				s.Fatalf("weights %v: a flow went to the backend that was removed", weights)
			case before[i] == removed:
			case before[i] == id:
				stayed++
			default:
				moved++
			}
		}
		// Removing one of four keeps the ring's size only while the backend is
		// drained; then few other flows move.
		if len(weights) == 4 && moved > stayed/4 {
			s.Errorf("draining one backend moved %d flows of the others, and left %d", moved, stayed)
		}
	}
}

func allGetFlows(s *suite) {
	for _, vip := range []lb.VIP{vip(1), vip6(1)} {
		svc := s.service(vip, 1, 1, 1, 1, 1, 1, 1, 1)
		s.update(svc)
		missing := map[lb.BackendID]bool{}
		for _, b := range svc.Backends {
			missing[b.ID()] = true
		}
		for _, id := range s.flows(vip) {
			delete(missing, id)
		}
		if len(missing) > 0 {
			s.Errorf("%s: no flow went to %v", vip, missing)
		}
	}
}

// counters checks that packets are counted once, at their service and their
// backend, and that a service's total outlives its backends.
func counters(s *suite) {
	svc := s.service(vip(1), 1, 1, 1)
	s.update(svc)
	s.update(s.service(vip(2), 1))
	s.wantTraffic(svc, map[lb.BackendID]uint64{})
	sent := map[lb.BackendID]uint64{}
	exits := s.exits()
	for _, id := range s.flows(svc.VIP) {
		sent[id]++
	}
	s.wantTraffic(svc, sent)
	if grown := s.exits() - exits; grown < uint64(flowCount()) {
		s.Errorf("the exits grew by %d for %d packets", grown, flowCount())
	}
	if other := s.stats().Services[vip(2)]; other.Packets != 0 {
		s.Errorf("another service counted %d packets", other.Packets)
	}

	s.update(svc)
	s.wantTraffic(svc, sent)
	svc = s.service(svc.VIP, 1, 1)
	s.update(svc)
	s.wantTraffic(svc, sent)
	for _, id := range s.flows(svc.VIP) {
		sent[id]++
	}
	s.wantTraffic(svc, sent)
}

// countingTime is how late counters may be, in an emulated machine.
const countingTime = 30 * time.Second

// wantTraffic waits until the counters of svc equal the packets sent to each backend,
// present or removed.
func (s *suite) wantTraffic(svc *lb.Service, sent map[lb.BackendID]uint64) {
	s.Helper()
	late := time.After(countingTime)
	for {
		err := checkTraffic(s.stats().Services[svc.VIP], svc, sent)
		if err == nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			s.Error(err)
			return
		}
	}
}

func checkTraffic(got dataplane.ServiceStats, svc *lb.Service, sent map[lb.BackendID]uint64) error {
	total := uint64(0)
	for _, packets := range sent {
		total += packets
	}
	if got.Packets != total || got.Bytes < 20*total {
		return fmt.Errorf("%d packets of %d bytes are counted, want %d", got.Packets, got.Bytes, total)
	}
	if len(got.Backends) != len(svc.Backends) {
		return fmt.Errorf("counters of %d backends, want %d", len(got.Backends), len(svc.Backends))
	}
	var sum dataplane.Traffic
	for _, b := range svc.Backends {
		traffic, _ := got.Backend(b.ID())
		if traffic.Packets != sent[b.ID()] {
			return fmt.Errorf("backend %s: %d packets are counted, want %d", b.ID(), traffic.Packets, sent[b.ID()])
		}
		sum = sum.Add(traffic)
	}
	if sum.Bytes > got.Bytes {
		return fmt.Errorf("the backends' %d bytes are more than the service's %d", sum.Bytes, got.Bytes)
	}
	return nil
}

// exits is the number of packets that left the data plane in any way.
func (s *suite) exits() uint64 {
	s.Helper()
	total := uint64(0)
	for packets := range maps.Values(s.stats().Exits) {
		total += packets
	}
	return total
}
