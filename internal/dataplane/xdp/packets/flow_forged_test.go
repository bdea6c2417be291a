// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fuzzrand"
)

// unstableService is an L2 DSR service whose first two backends have got seven others, so
// that its ring has another size, or which has lost the first two then.
type unstableService struct {
	t *testing.T
	p *xdp.Unattached
	*lb.Service
	all []lb.Backend
}

func newUnstableService(t *testing.T, p *xdp.Unattached, vip lb.VIP) *unstableService {
	t.Helper()
	s := &unstableService{t: t, p: p, Service: manyBackends(vip.Address, 9)}
	s.VIP, s.IdleTimeout, s.all = vip, 8*time.Hour, s.Backends
	if vip.Protocol == lb.UDP {
		s.Tracking = lb.TrackingFull
	}
	s.change(2)
	return s
}

// change gives the service the first backends, and takes those before the given one away.
func (s *unstableService) change(backends int, from ...int) {
	s.t.Helper()
	s.Backends = s.all[:backends]
	for _, n := range from {
		s.Backends = s.all[n:backends]
	}
	update(s.t, s.p, s.Service)
}

// clientNumber is the nth client.
func clientNumber(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18 + byte(n>>16), byte(n >> 8), byte(n)}), 1000)
}

// at sends a client's packet and returns the backend that gets it.
func (s *unstableService) at(client netip.AddrPort, flags uint8, seq uint32) lb.BackendID {
	s.t.Helper()
	f := frame{destination: balancerMAC, source: clientMAC}
	f.ip = flowIP(s.VIP.Protocol, client, netip.AddrPortFrom(s.VIP.Address, s.VIP.Port), 60, flags)
	if tcp, ok := f.ip[1].(*layers.TCP); ok {
		tcp.Seq = seq
	}
	verdict, out := run(s.t, s.p, f.build())
	id, _ := receiver(s.t, verdict, out, s.VIP, s.all)
	return id
}

// begun opens so many connections, whose next sequence number is clientNext, and returns
// their backends.
func (s *unstableService) begun(clients int) map[netip.AddrPort]lb.BackendID {
	s.t.Helper()
	homes := map[netip.AddrPort]lb.BackendID{}
	for i := range clients {
		client := netip.AddrPortFrom(client4.Addr(), uint16(1000+i))
		homes[client] = s.at(client, tcpSYN, clientNext-1)
		s.at(client, tcpACK, clientNext)
	}
	return homes
}

func (s *unstableService) wantHomes(homes map[netip.AddrPort]lb.BackendID, when string) {
	s.t.Helper()
	for client, home := range homes {
		if got := s.at(client, tcpACK, clientNext); got != home {
			s.t.Errorf("%s: %s is at %s, began at %s", when, client, got, home)
		}
	}
}

var webVIP = lb.VIP{Address: vip4, Port: 80, Protocol: lb.TCP}

// A SYN for an open flow may be forged, and so may the segments that follow it: the server
// decides, which knows whether the flow is open.
func TestForgedSYN(t *testing.T) {
	s := newUnstableService(t, quietPlane(t, "", program.FeatureL2DSR), webVIP)
	older := s.begun(200)
	s.change(9)
	s.wantHomes(older, "after the change")
	younger := s.begun(400)
	for client := range older {
		delete(younger, client)
	}
	s.change(6)
	for _, homes := range []map[netip.AddrPort]lb.BackendID{older, younger} {
		s.wantHomes(homes, "before")
		for client, home := range homes {
			if slices.ContainsFunc(s.all[6:], func(b lb.Backend) bool { return b.Address == home.Addr() }) {
				continue // which takes no new flows
			}
			if got := s.at(client, tcpSYN, 0x12345678); got != home {
				t.Errorf("SYN of %s to %s, want %s", client, got, home)
			}
			s.at(client, tcpACK, 0x12345679)
			s.at(client, tcpACK, 0x12345679)
		}
		s.wantHomes(homes, "forged")
	}
}

// A new connection from the port of an open flow goes to a backend that takes new flows. The
// SYN alone moves nothing. The backend may have been removed while no agent ran.
func TestSYNOfRemovedBackend(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) { testSYNOfRemovedBackend(t, restart) })
	}
}

func testSYNOfRemovedBackend(t *testing.T, restart bool) {
	dir := testPins(t)
	s := newUnstableService(t, quietPlane(t, dir, program.FeatureL2DSR), webVIP)
	homes := s.begun(100)
	s.change(9)
	s.wantHomes(homes, "after the change")
	if restart {
		must(t, s.p.Close())
		s.p = quietPlane(t, dir, program.FeatureL2DSR)
	}
	s.change(9, 2)
	for client, home := range homes {
		s.at(client, tcpSYN, 0x12345678)
		if got := s.at(client, tcpACK, clientNext); got != home {
			t.Errorf("%s moved from %s to %s by a forged SYN", client, home, got)
		}
		to := s.at(client, tcpSYN, 0x40000000)
		if to == home {
			t.Errorf("a new connection of %s is at the removed %s", client, home)
		}
		for range 2 {
			if got := s.at(client, tcpACK, 0x40000001); got != to {
				t.Errorf("a new connection of %s is at %s, its SYN went to %s", client, got, to)
			}
		}
	}
}

// Forged segments with other numbers than the client's end no record, and one with the right
// number does.
func TestForgedResetKeepsRecord(t *testing.T) {
	p := quietPlane(t, "", program.FeatureL2DSR)
	s := newUnstableService(t, p, webVIP)
	s.change(9)
	homes := s.begun(20)
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	later := time.Duration(0)
	silence := func(by time.Duration) {
		t.Helper()
		age(t, p, by)
		later += by
		must(t, p.SweepFlows(later))
	}
	for range repeated(65536) {
		client := netip.AddrPortFrom(client4.Addr(), uint16(1000+random.IntN(len(homes))))
		for _, flags := range []uint8{tcpRST, tcpRST | tcpACK, tcpFIN | tcpACK, tcpSYN} {
			if seq := random.Uint32(); seq-clientNext+1 > 2 {
				s.at(client, flags, seq)
			}
		}
	}
	silence(time.Hour)
	if live := liveFlows(t, p, s.Service); live != len(homes) {
		t.Errorf("%d flows are live, want %d", live, len(homes))
	}
	s.wantHomes(homes, "after forged segments")
	for client := range homes {
		s.at(client, tcpFIN|tcpACK, clientNext)
		s.at(client, tcpACK, clientNext+1)
	}
	silence(time.Minute)
	if live := liveFlows(t, p, s.Service); live != 0 {
		t.Errorf("%d closed flows are live", live)
	}
	silence(time.Hour)
	if left := len(records(t, p)); left != 0 {
		t.Errorf("%d records of closed flows are left", left)
	}
}

// Sequence numbers outside the closed connection belong to another one, whose SYN another
// balancer got.
func TestClosedPortReuse(t *testing.T) {
	p := quietPlane(t, "", program.FeatureL2DSR)
	s := newUnstableService(t, p, webVIP)
	s.change(9)
	for client := range s.begun(1) {
		s.at(client, tcpFIN|tcpACK, clientNext)
		s.at(client, tcpACK, 0x40000001)
	}
	age(t, p, time.Minute)
	if live := liveFlows(t, p, s.Service); live != 1 {
		t.Errorf("%d flows are live, want 1", live)
	}
}

// floodRound is a number of new flows that a limit lets pass at once.
const floodRound = 256

// A flood on one service evicts no record of another's flow that began after the change, of
// however many packets each of its flows is.
func TestFloodEvictsNoFlow(t *testing.T) {
	other := lb.VIP{Address: vip4, Port: 81, Protocol: lb.TCP}
	datagrams := lb.VIP{Address: vip4, Port: 81, Protocol: lb.UDP}
	for name, flood := range map[string]struct {
		vip   lb.VIP
		flags []uint8
	}{
		"syn":           {other, []uint8{tcpSYN}},
		"ack":           {other, []uint8{tcpACK}},
		"acks":          {other, []uint8{tcpACK, tcpACK}},
		"syn, ack":      {other, []uint8{tcpSYN, tcpACK}},
		"two datagrams": {datagrams, []uint8{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			p := quietPlane(t, "", program.FeatureL2DSR)
			s, flooded := newUnstableService(t, p, webVIP), newUnstableService(t, p, flood.vip)
			s.change(9)
			flooded.change(9)
			homes := s.begun(200)
			for i := range 2 * testCapacity.Flows {
				if i%floodRound == 0 {
					setLimit(t, p, table.BalancerRateRATE_RECORD, 0)
				}
				for n, flags := range flood.flags {
					flooded.at(clientNumber(i), flags, uint32(n))
				}
			}
			if stats(t, p).Services[flooded.VIP].Tracking.Inserts < uint64(testCapacity.Flows) {
				t.Error("the flood made too few records")
			}
			s.wantHomes(homes, "after the flood")
		})
	}
}

// A record whose client's second segment doesn't follow its SYN isn't kept from floods.
func TestRecordConfirmation(t *testing.T) {
	p := quietPlane(t, "", program.FeatureL2DSR)
	s := newUnstableService(t, p, webVIP)
	s.change(9)
	for i, test := range []struct {
		flags     uint8
		seq       uint32
		confirmed bool
	}{
		{tcpACK, 101, true},
		{tcpACK | tcpPSH, 101 + 3000, true}, // others before it were lost
		{tcpACK, 100, false},
		{tcpACK, 0x12345678, false},
		{tcpRST, 101, false},
		{tcpRST | tcpACK, 101, false},
		{tcpPSH, 101, false},
	} {
		before := countRecords(t, p.Tables.Maps.Flows)
		s.at(clientNumber(i), tcpSYN, 100)
		s.at(clientNumber(i), test.flags, test.seq)
		if got := countRecords(t, p.Tables.Maps.Flows) > before; got != test.confirmed {
			t.Errorf("flags %#x, number %d: confirmed %t", test.flags, test.seq, got)
		}
	}
	setLimit(t, p, table.BalancerRateRATE_CONFIRM, ^uint64(0))
	before := countRecords(t, p.Tables.Maps.Flows)
	s.at(clientNumber(100), tcpSYN, 100)
	home := s.at(clientNumber(100), tcpACK, 101)
	if got := countRecords(t, p.Tables.Maps.Flows); got != before {
		t.Errorf("%d records, want %d", got, before)
	}
	setLimit(t, p, table.BalancerRateRATE_CONFIRM, 0)
	if got := s.at(clientNumber(100), tcpACK, 101); got != home {
		t.Errorf("moved from %s to %s", home, got)
	}
	if got := countRecords(t, p.Tables.Maps.Flows); got != before+1 {
		t.Errorf("%d records, want %d", got, before+1)
	}
}

func countRecords(t *testing.T, flows *ebpf.Map) (n int) {
	t.Helper()
	must(t, table.EachRecord(flows, func(uint64, *table.BalancerFlow) { n++ }))
	return n
}

// When there are too many new flows, they begin where their later packets go without a
// record: on the previous ring's backend.
func TestNewFlowsWithoutRecords(t *testing.T) {
	p := quietPlane(t, "", program.FeatureL2DSR)
	s := newUnstableService(t, p, webVIP)
	s.change(9)
	setLimit(t, p, table.BalancerRateRATE_RECORD, ^uint64(0))
	s.wantHomes(s.begun(200), "without records")
	if got := stats(t, p).Services[s.VIP].Tracking; got.Inserts != 0 || got.Unrecorded == 0 {
		t.Errorf("%+v, want flows without records", got)
	}
}
