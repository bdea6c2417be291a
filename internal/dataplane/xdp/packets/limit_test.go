// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fuzzrand"
)

// limited is a service at which so many new flows may come in a second.
func limited(vip netip.Addr, protocol lb.Protocol, limits lb.FlowLimits) *lb.Service {
	svc := manyBackends(vip, 3)
	svc.Protocol, svc.Limits = protocol, limits
	return svc
}

// newFlow is the first packet of one of a client's flows.
func newFlow(vip lb.VIP, client string, port int) []byte {
	return flowPacket(vip, netip.AddrPortFrom(netip.MustParseAddr(client), uint16(port)))
}

// offer sends packets and returns how many left by each exit, and how long that
// took.
func offer(t *testing.T, p *xdp.Unattached, packets ...[]byte) (map[string]uint64, time.Duration) {
	t.Helper()
	programOf(t, p) // which may take its time
	begun := monotonic(t)
	moved := exits(t, p, func() {
		for _, packet := range packets {
			run(t, p, packet)
		}
	})
	return moved, time.Duration(monotonic(t) - begun)
}

// monotonic is the clock that the program reads, in nanoseconds.
func monotonic(t *testing.T) uint64 {
	t.Helper()
	var now unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return uint64(now.Nano())
}

// wantLimited checks how packets left that came as fast as they can: a second's
// worth at once, and as many more as the time that passed allows. All others
// left by one exit.
func wantLimited(t *testing.T, moved map[string]uint64, took time.Duration, limit, offered int, exit string) {
	t.Helper()
	passed, most := int(moved["forward_l2dsr"]+moved["forward_nat"]), limit+1+int(took.Seconds()*float64(limit))
	if passed < min(limit, offered) || passed > most {
		t.Errorf("%d of %d new flows passed in %s, want %d to %d", passed, offered, took, limit, most)
	}
	if rest := int(moved[exit]); rest != offered-passed {
		t.Errorf("%d packets left by %s, want %d: %v", rest, exit, offered-passed, moved)
	}
}

func many(n int, packet func(i int) []byte) [][]byte {
	packets := make([][]byte, n)
	for i := range packets {
		packets[i] = packet(i)
	}
	return packets
}

// wantLimit offers flows, of which a limit lets so many pass each second.
func wantLimit(t *testing.T, p *xdp.Unattached, limit int, exit string, flows [][]byte) {
	t.Helper()
	moved, took := offer(t, p, flows...)
	wantLimited(t, moved, took, limit, len(flows), exit)
}

func TestServiceLimit(t *testing.T) {
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(family(vip)+" "+protocol.String(), func(t *testing.T) {
				p, _ := newTestPlane(t)
				svc := limited(vip, protocol, lb.FlowLimits{NewFlows: 20})
				update(t, p, svc)
				wantLimit(t, p, 20, "drop_service_limit", many(200, func(i int) []byte {
					return flowPacket(svc.VIP, clientOf(vip, 2000+i))
				}))
			})
		}
	}
}

// Clients have shares of their own. An IPv6 client is a network of 64 bits.
func TestSourceLimit(t *testing.T) {
	p, _ := newTestPlane(t)
	four := limited(vip4, lb.TCP, lb.FlowLimits{NewFlowsPerSource: 5})
	six := limited(vip6, lb.UDP, lb.FlowLimits{NewFlowsPerSource: 5})
	update(t, p, four)
	update(t, p, six)
	for _, c := range []struct {
		name string
		flow func(i int) []byte
	}{
		{"one", func(i int) []byte { return newFlow(four.VIP, "192.0.2.7", 2000+i) }},
		{"neighbour", func(i int) []byte { return newFlow(four.VIP, "192.0.2.6", 2000+i) }},
		{"6: one network", func(i int) []byte {
			address := netip.MustParseAddr("2001:db8:0:1::").As16()
			address[8+i%8] = byte(1 + i)
			return newFlow(six.VIP, netip.AddrFrom16(address).String(), 2000)
		}},
		{"6: neighbour", func(i int) []byte { return newFlow(six.VIP, "2001:db8:0:2::1", 2000+i) }},
	} {
		t.Run(c.name, func(t *testing.T) { wantLimit(t, p, 5, "drop_source_limit", many(60, c.flow)) })
	}
}

// A client beyond its share takes nothing from the others'.
func TestBothLimits(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := limited(vip4, lb.TCP, lb.FlowLimits{NewFlows: 20, NewFlowsPerSource: 1})
	update(t, p, svc)
	begun := monotonic(t)
	greedy, took := offer(t, p, many(60, func(i int) []byte { return newFlow(svc.VIP, "192.0.2.7", 2000+i) })...)
	wantLimited(t, greedy, took, 1, 60, "drop_source_limit")
	others, _ := offer(t, p, many(60, func(i int) []byte {
		return newFlow(svc.VIP, netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}).String(), 2000)
	})...)
	others["forward_l2dsr"] += greedy["forward_l2dsr"]
	all := 60 + int(greedy["forward_l2dsr"])
	wantLimited(t, others, time.Duration(monotonic(t)-begun), 20, all, "drop_service_limit")
}

// With DSR the balancer that a new flow reaches first counts it: the node of the backend doesn't
// count flows that other nodes with backends relay to it.
func TestLimitsOfRelayedFlows(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range relayCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			svc := c.asking()
			svc.Backends[1].Weight, svc.Backends[2].Weight = 0, 0 // the ring names the own backend
			svc.Limits = lb.FlowLimits{NewFlows: 20}
			update(t, p, svc)
			defer remove(t, p, c.vip)
			defer endAllSessions(t, p)
			flows := func(port int, from lb.MAC) [][]byte {
				return many(200, func(i int) []byte {
					flow := c
					flow.client = clientOf(c.vip.Address, port+i)
					in := flow.fromClient(tcpSYN)
					in.source = from
					return in.build()
				})
			}
			relayed, _ := offer(t, p, flows(2000, macOf(svc.Backends[2].Node))...)
			if want := map[string]uint64{"forward_nat": 200}; !maps.Equal(relayed, want) {
				t.Errorf("relayed flows: counters %v, want %v", relayed, want)
			}
			wantLimit(t, p, 20, "drop_service_limit", flows(3000, clientMAC))
		})
	}
}

// Flows that are there already go on, however many new ones are refused, and
// services without limits aren't touched.
func TestLimitsOfKnownFlows(t *testing.T) {
	p, _ := newTestPlane(t)
	tight := lb.FlowLimits{NewFlows: 1, NewFlowsPerSource: 1}
	tcp, udp, free := limited(vip4, lb.TCP, tight), limited(vip4, lb.UDP, tight), limited(vip6, lb.TCP, lb.FlowLimits{})
	for _, svc := range []*lb.Service{tcp, udp, free} {
		update(t, p, svc)
	}
	open := tcpSegment(tcp.VIP, client4, func(*layers.TCP) {})
	handshake := tcpSegment(tcp.VIP, client4, func(h *layers.TCP) { h.SYN = true })
	datagram := newFlow(udp.VIP, "192.0.2.7", 2000)
	offer(t, p, newFlow(tcp.VIP, "192.0.2.7", 2000), datagram)
	packets := many(100, func(i int) []byte {
		return [][]byte{open, handshake, datagram, newFlow(free.VIP, "2001:db8::7", i)}[i%4]
	})
	moved, _ := offer(t, p, packets...)
	if want := map[string]uint64{"forward_l2dsr": 100}; !maps.Equal(moved, want) {
		t.Errorf("counters %v, want %v", moved, want)
	}
}

// Limits hold on while agents change, change at once and can be taken away.
func TestLimitsChange(t *testing.T) {
	dir := testPins(t)
	first := openTestPlane(t, dir, newStaticHops())
	svc := limited(vip4, lb.TCP, lb.FlowLimits{NewFlows: 10})
	update(t, first, svc)
	must(t, first.Close())
	p := openTestPlane(t, dir, newStaticHops())
	flows := many(200, func(i int) []byte { return newFlow(svc.VIP, "192.0.2.7", 2000+i) })
	wantLimit(t, p, 10, "drop_service_limit", flows)

	svc.Limits = lb.FlowLimits{NewFlowsPerSource: 30}
	update(t, p, svc)
	wantLimit(t, p, 30, "drop_source_limit", flows)

	svc.Limits = lb.FlowLimits{}
	update(t, p, svc)
	moved, _ := offer(t, p, flows...)
	if want := map[string]uint64{"forward_l2dsr": 200}; !maps.Equal(moved, want) {
		t.Errorf("without limits: counters %v, want %v", moved, want)
	}
}

// limitWindow is one second in the program's unit.
const limitWindow = uint64(time.Second) << table.BalancerLimitTimeLIMIT_TIME_SHIFT

// limitModel is bpf/pick/admit.h's limit_take, written a second time.
func limitModel(arrival, interval, now uint64) (uint64, bool) {
	ahead := uint64(0)
	if arrival-now <= 2*limitWindow {
		ahead = arrival - now
	}
	if ahead+interval > limitWindow {
		return arrival, false
	}
	return now + ahead + interval, true
}

// One packet after the other, with the limit used up to a random degree: the
// program decides and counts as the model does at a time between those just
// before and just after.
func TestLimitModel(t *testing.T) {
	p, _ := newTestPlane(t)
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	for _, rate := range []int{1, 3, 1000, 999_983, lb.MaxNewFlows} {
		svc := limited(vip4, lb.TCP, lb.FlowLimits{NewFlows: rate})
		update(t, p, svc)
		number := serviceNumber(t, p, svc.VIP)
		at := unsafe.Offsetof(table.BalancerService{}.Limit) + unsafe.Offsetof(table.BalancerLimit{}.Arrival)
		for range 400 {
			// From two windows behind to three ahead, and anything at all.
			seen := monotonic(t)<<table.BalancerLimitTimeLIMIT_TIME_SHIFT - 2*limitWindow + random.Uint64N(5*limitWindow)
			if random.IntN(8) == 0 {
				seen = random.Uint64()
			}
			must(t, table.WriteService(p.Tables, number, at, seen))
			before := monotonic(t) << table.BalancerLimitTimeLIMIT_TIME_SHIFT
			verdict, _ := run(t, p, newFlow(svc.VIP, "192.0.2.7", 2000))
			after := monotonic(t) << table.BalancerLimitTimeLIMIT_TIME_SHIFT
			raw, err := p.Tables.ReadService(number)
			must(t, err)
			got := raw.Limit.Arrival
			low, early := limitModel(seen, limitWindow/uint64(rate), before)
			high, late := limitModel(seen, limitWindow/uint64(rate), after)
			passed := verdict == xdpTX
			switch {
			case passed != early && passed != late:
				t.Errorf("rate %d: passed %t, want %t", rate, passed, early)
			case passed && early && late && got-low > high-low:
				t.Errorf("rate %d: the next flow would come at %d, want %d to %d", rate, got, low, high)
			case !passed && got != seen:
				t.Errorf("rate %d: a refused flow changed %d into %d", rate, seen, got)
			}
		}
		remove(t, p, svc.VIP)
	}
}
