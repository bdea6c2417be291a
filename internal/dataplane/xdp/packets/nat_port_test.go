// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fuzzrand"
)

// newNATPlane is a test's plane with addresses and ports of its own.
func newNATPlane(t *testing.T, nat program.NAT) (*xdp.Unattached, *staticHops) {
	t.Helper()
	hops := newStaticHops()
	return openConfig(t, xdp.Config{
		PinDir: testPins(t), Capacity: testCapacity, Seed: 1, NAT: nat, Log: slog.New(slog.DiscardHandler),
	}, hops), hops
}

// natEnd is a server's view of a flow.
type natEnd struct {
	protocol lb.Protocol
	snat     netip.AddrPort
	server   netip.AddrPort
}

// endOf reads it out of an untagged frame without options.
func endOf(protocol lb.Protocol, frame []byte) natEnd {
	addresses, size, ports := atIP+12, 4, atIP+20
	if frame[atIP]>>4 == 6 {
		addresses, size, ports = atIP+8, 16, atIP+40
	}
	end := func(n int) netip.AddrPort {
		a, _ := netip.AddrFromSlice(frame[addresses+n*size:][:size])
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(frame[ports+2*n:]))
	}
	return natEnd{protocol, end(0), end(1)}
}

// sharedServers are services of both families and protocols; two of each have the
// same two servers.
func sharedServers() []*lb.Service {
	var services []*lb.Service
	for _, c := range natCases() {
		for port := range uint16(2) {
			svc := c.service()
			svc.Port += port
			second := svc.Backends[0]
			second.Address = second.Address.Next()
			svc.Backends = append(svc.Backends, second)
			services = append(services, svc)
		}
	}
	return services
}

// natModel has the server's view of each flow.
type natModel struct {
	ends   map[natFlow]natEnd
	owners map[natEnd]natFlow
	// taken counts the ends at each server.
	taken map[natServer]int
}

type natFlow struct {
	vip    lb.VIP
	client netip.AddrPort
}

type natServer struct {
	protocol lb.Protocol
	server   netip.AddrPort
}

func (e natEnd) at() natServer { return natServer{e.protocol, e.server} }

// saw records a packet of a flow, or returns an error if it is wrong.
func (m *natModel) saw(flow natFlow, end natEnd) error {
	known, had := m.ends[flow]
	if owner, taken := m.owners[end]; had && known != end || !had && taken {
		return fmt.Errorf("%v got %v, which %v has; it had %v", flow, end, owner, known)
	}
	if !had {
		m.ends[flow], m.owners[end] = end, flow
		m.taken[end.at()]++
	}
	return nil
}

// dropped returns an error if a flow should not have been dropped, as each server
// has room for so many.
func (m *natModel) dropped(flow natFlow, room int) error {
	if known, had := m.ends[flow]; had {
		return fmt.Errorf("%v was dropped, but has %v", flow, known)
	}
	for at, taken := range m.taken {
		if at.protocol == flow.vip.Protocol && at.server.Addr().Is4() == flow.client.Addr().Is4() && taken >= room {
			return nil
		}
	}
	return fmt.Errorf("%v was dropped, but no server is full: %v", flow, m.taken)
}

// end lets some sessions expire.
func (m *natModel) end(t *testing.T, p *xdp.Unattached, random *rand.Rand) {
	t.Helper()
	over := map[natFlow]bool{}
	for flow, end := range m.ends {
		if random.IntN(8) == 0 {
			over[flow] = true
			delete(m.ends, flow)
			delete(m.owners, end)
			m.taken[end.at()]--
		}
	}
	changeSessions(t, p, func(s *table.BalancerNatSession) bool {
		detail, err := table.ReadServiceDetail(p.Tables, uint32(s.Service))
		must(t, err)
		if over[natFlow{table.VIPOf(detail.Vip), netip.AddrPortFrom(table.Unmapped(s.Client), table.WirePort(s.ClientPort))}] {
			s.Seen -= uint32(24 * time.Hour >> table.FlowTimeShift)
		}
		return true
	})
}

// No two flows ever have the same end at a server, and as long as one is free
// every flow gets one: many flows of services that share their servers, few ports,
// and sessions that end.
func TestNATPortsAreUnique(t *testing.T) {
	addresses := []netip.Addr{
		netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("10.9.0.3"),
		netip.MustParseAddr("fd00:9::1"), netip.MustParseAddr("fd00:9::2"), netip.MustParseAddr("fd00:9::3"),
	}
	p, _ := newNATPlane(t, program.NAT{Addresses: addresses, FirstPort: 2000, LastPort: 2016})
	const room = 3 * 17
	services := sharedServers()
	for _, svc := range services {
		update(t, p, svc)
	}
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	m := natModel{map[natFlow]natEnd{}, map[natEnd]natFlow{}, map[natServer]int{}}
	drops := 0
	for n := range 8000 {
		svc := services[random.IntN(len(services))]
		flow := natFlow{svc.VIP, clientOf(svc.Address, 1024+random.IntN(100))}
		in := flowPacket(flow.vip, flow.client)
		if _, begun := m.ends[flow]; begun && svc.Protocol == lb.TCP {
			in = open(flow.vip, flow.client) // a server that answers none of many SYNs would be replaced
		}
		verdict, out := run(t, p, in)
		var err error
		if verdict == xdpDrop {
			drops++
			err = m.dropped(flow, room)
		} else {
			err = m.saw(flow, endOf(svc.Protocol, out))
			confirmSessionsUntil(t, p, time.Hour) // however long this test takes
		}
		if err != nil {
			t.Fatalf("packet %d: %v", n, err)
		}
		if random.IntN(200) == 0 {
			m.end(t, p, random)
		}
	}
	if drops == 0 || len(m.ends) < room {
		t.Errorf("%d flows, %d packets dropped: want more of both", len(m.ends), drops)
	}
}

// Every address and port is found, also the last one; then new flows are dropped,
// and counted, until one is given up.
func TestNATPortsRunOut(t *testing.T) {
	for _, nat := range []program.NAT{
		{FirstPort: 65535, LastPort: 65535},
		{FirstPort: 1, LastPort: 10},
		{FirstPort: 30000, LastPort: 30007, Addresses: []netip.Addr{local4, local4.Next(), local6, local6.Next()}},
	} {
		t.Run(fmt.Sprintf("%d-%d", nat.FirstPort, nat.LastPort), func(t *testing.T) {
			p, _ := newNATPlane(t, nat)
			for _, c := range natCases() {
				update(t, p, c.service())
				endAllSessions(t, p)
				room := int(nat.LastPort-nat.FirstPort+1) * max(1, len(nat.Addresses)/2)
				ends := map[natEnd]bool{}
				for i := range room {
					c.client = clientOf(c.vip.Address, 1024+i)
					ends[endOf(c.vip.Protocol, wantVerdict(t, p, c.fromClient(tcpSYN).build(), xdpTX, "forward_nat"))] = true
					confirmSessions(t, p)
				}
				if len(ends) != room {
					t.Errorf("%s: %d ends, want %d", c.vip, len(ends), room)
				}
				c.client = clientOf(c.vip.Address, 1)
				for range 3 {
					wantExit(t, p, c.fromClient(tcpSYN).build(), xdpDrop, "drop_no_nat_port")
				}
				testReuse(t, p, c)
				remove(t, p, c.vip)
			}
		})
	}
}

// No session gets the port of a tunnel: on a node with services in segments the server's answer
// would be taken for a packet of a segment.
func TestNATPortsOfTunnels(t *testing.T) {
	for _, c := range []struct{ first, last uint16 }{{4788, 4790}, {6079, 6082}} {
		p, _ := newNATPlane(t, program.NAT{FirstPort: c.first, LastPort: c.last})
		for _, segment := range []lb.Segment{redVXLAN, redGeneve} {
			svc := manyBackends(vip4, 1)
			svc.Segment = segment
			update(t, p, svc)
		}
		session := natCaseOf(vip4, lb.UDP)
		update(t, p, session.service())
		for i := range 2 {
			session.client = clientOf(vip4, 1024+i)
			port := begin(t, p, session)
			confirmSessions(t, p)
			wantFrame(t, p, session.fromServer(0, port), session.atClient(0), xdpTX, "forward_nat_reply")
		}
		session.client = clientOf(vip4, 1)
		wantExit(t, p, session.fromClient(0).build(), xdpDrop, "drop_no_nat_port")
	}
}

// testReuse ends one session of many, which a new one of c replaces.
func testReuse(t *testing.T, p *xdp.Unattached, c natCase) {
	t.Helper()
	var victim [16]byte
	var port uint16
	changeSessions(t, p, func(s *table.BalancerNatSession) bool {
		if port == 0 && table.IsReply(s) && protocolOf(s) == c.vip.Protocol {
			victim, port = s.Client, s.ClientPort
			if c.vip.Protocol == lb.TCP { // closed, and some seconds old
				s.State, s.Seen = uint8(table.BalancerNatStateNAT_CLOSING), s.Seen-uint32(6*time.Second>>table.FlowTimeShift)
			} else {
				s.Seen -= uint32(time.Minute >> table.FlowTimeShift)
			}
		}
		return true
	})
	wantVerdict(t, p, c.fromClient(tcpSYN).build(), xdpTX, "forward_nat")
	for _, s := range sessionsOf(t, p) {
		if s.Client == victim && s.ClientPort == port && protocolOf(&s) == c.vip.Protocol {
			t.Errorf("%s: of the session that was replaced there is still %+v", c.vip, s)
		}
	}
}

// The entry of a port that is taken over may become another session's at that moment, as the
// kernel reuses the memory of evicted entries: the other session keeps its own entries.
func TestNATPortTakenOverLate(t *testing.T) {
	p, hops := newNATPlane(t, program.NAT{FirstPort: 65534, LastPort: 65535})
	runScenariosOn(t, p, hops, scenario{"", tcp(natCases()), steps{serve(natCase.service), func(s *scene) {
		ended, other := s.natCase, s.natCase
		ended.client, other.client = clientOf(s.vip.Address, 1001), clientOf(s.vip.Address, 1002)
		begin(s.t, s.p, ended)
		port := begin(s.t, s.p, other)
		confirmSessions(s.t, s.p)
		var at uint64
		var evicted table.BalancerNatSession
		for key, e := range sessionsOf(s.t, s.p) {
			switch {
			case !table.IsReply(&e):
			case table.WirePort(e.ClientPort) == ended.client.Port():
				at = key
			default:
				evicted = e
			}
		}
		evicted.State, evicted.Seen = uint8(table.BalancerNatStateNAT_CLOSING), evicted.Seen-uint32(6*time.Second>>table.FlowTimeShift)
		must(s.t, table.SessionTable(s.p.Tables, &evicted).Put(at, &evicted))
		wantVerdict(s.t, s.p, s.fromClient(tcpSYN).build(), xdpTX, "forward_nat")
		wantFrame(s.t, s.p, other.fromClient(tcpACK), other.atServer(tcpACK, port), xdpTX, "forward_nat")
	}}})
}

// Flows begin at places that their hashes select: the ports of many flows are spread
// over the whole range, for flows of one client and of clients with the same port.
func TestNATPortsAreSpread(t *testing.T) {
	for _, vip := range []netip.Addr{vip4, vip6} {
		for name, client := range map[string]func(i int) netip.AddrPort{
			"ports":     func(i int) netip.AddrPort { return clientOf(vip, 1024+i) },
			"addresses": func(i int) netip.AddrPort { return netip.AddrPortFrom(nthAddress(vip, i), 1024) },
		} {
			t.Run(fmt.Sprintf("%s/%s", vip, name), func(t *testing.T) {
				p, _ := newTestPlane(t)
				c := natCaseOf(vip, lb.UDP)
				update(t, p, c.service())
				testSpread(t, p, c, client)
			})
		}
	}
}

func testSpread(t *testing.T, p *xdp.Unattached, c natCase, client func(i int) netip.AddrPort) {
	t.Helper()
	var parts [8]int
	const flows = 800
	for i := range flows {
		c.client = client(i)
		_, out := run(t, p, c.fromClient(0).build())
		port := int(sourcePort(t, out)) - program.DefaultFirstPort
		parts[port*len(parts)/(program.DefaultLastPort-program.DefaultFirstPort+1)]++
		if i%50 == 0 {
			confirmSessionsUntil(t, p, time.Hour) // however long this test takes
		}
	}
	for _, n := range parts {
		if n < flows/len(parts)/2 || n > flows/len(parts)*2 {
			t.Errorf("flows in each eighth of the range: %d", parts)
		}
	}
	if n := len(sessionsOf(t, p)); n != 2*flows {
		t.Errorf("%d entries of sessions, want %d: none takes another's port", n, 2*flows)
	}
}

// nthAddress is the nth of many clients' addresses of a family.
func nthAddress(family netip.Addr, n int) netip.Addr {
	if family.Is4() {
		return netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)})
	}
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0, 2, 14: byte(n >> 8), 15: byte(n)})
}

// The first packets of a flow may come on several processors at once, and one of
// them begins its session: all leave by the same port, and the others' entries
// are gone. Where the server's entry of a session is not the flow's any more, its
// answers would be lost.
func TestNATBegunTwice(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one processor begins one session after the other")
	}
	const flows, round = 4000, 250 // of which a few in a hundred meet, fewer on a busy machine
	p, _ := newTestPlane(t)
	c := natCaseOf(vip4, lb.UDP)
	update(t, p, c.service())
	split := 0
	for n := range flows {
		c.client = netip.AddrPortFrom(c.client.Addr(), uint16(20000+n))
		first, second := atOnce(t, p, c.fromClient(0).build(), c.fromClient(0).build())
		if sourcePort(t, first) != sourcePort(t, second) {
			split++
		}
		if (n+1)%round == 0 {
			if entries := len(sessionsOf(t, p)); entries != 2*round {
				t.Errorf("%d entries, want %d", entries, 2*round)
			}
			endAllSessions(t, p)
		}
	}
	if split > 0 {
		t.Errorf("%d of %d flows left by two ports", split, flows)
	}
}

// atOnce puts a frame in on each of two processors, as nearly at the same time as can be,
// and returns the frames that come out.
func atOnce(t *testing.T, p *xdp.Unattached, one, other []byte) (first, second []byte) {
	t.Helper()
	program := programOf(t, p)
	var ready atomic.Int32
	var group errgroup.Group
	for out, in := range map[*[]byte][]byte{&first: one, &second: other} {
		options := &ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+256)}
		group.Go(func() error {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Add(1)
			for begun := false; !begun; { // giving way would let one be late
				begun = ready.Load() == 2
			}
			_, err := program.Run(options)
			*out = options.DataOut
			return err
		})
	}
	must(t, group.Wait())
	return first, second
}
