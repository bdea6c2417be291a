// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/wire"
)

// manyFlows exceed any cache.
const manyFlows = 1 << 20

// shape is the number of services, and of backends of each.
type shape struct{ vips, backends int }

var (
	oneService = shape{1, 255}
	// paper has 4,000 backends in all (Kakao paper, section VI).
	paper   = shape{128, 31}
	medium  = shape{512, 16}
	most    = shape{4096, 16} // the services of the Kakao paper's table
	largest = shape{32, 4000}
)

// hosts is the number of servers that all services share.
const hosts = 4000

func (s shape) String() string { return fmt.Sprintf("%dx%d", s.vips, s.backends) }

// workload is the common part of all packets.
type workload struct {
	shape
	protocol lb.Protocol
	ipv6     bool
}

// String returns for example "tcp over ipv4, 1x255".
func (t workload) String() string {
	return fmt.Sprintf("%s over %s, %s", t.protocol, t.family(), t.shape)
}

func (t workload) family() string {
	if t.ipv6 {
		return "ipv6"
	}
	return "ipv4"
}

// subject is a program that is measured.
type subject struct {
	name     string // the forwarding mode, or bare or reflector
	mode     lb.Forward
	tracking lb.Tracking
}

// Reference programs: bare only returns XDP_TX, reflector also swaps the Ethernet
// addresses.
var (
	bare      = subject{name: "none"}
	reflector = subject{name: "reflector"}
)

func balancer(mode lb.Forward, tracking lb.Tracking) subject {
	return subject{name: mode.String(), mode: mode, tracking: tracking}
}

// exit is the counter of packets sent to a backend.
func (s subject) exit() string {
	if s.mode == lb.DSR { // backends on this node
		return "forward_nat"
	}
	return "forward_" + s.name
}

// conditions of one result.
type conditions struct {
	workload
	subject
	flows int
	// processors have packets at the same time, each of as many flows of its own.
	processors int
}

// String returns for example "tcp over ipv4, 4096x16, l2dsr, 65536 flows".
func (c conditions) String() string {
	text := fmt.Sprintf("%s, %s, %d flows", c.workload, c.name, c.flows)
	if c.tracking == lb.TrackingFull {
		text += ", tracking full"
	}
	if c.processors > 1 {
		text += fmt.Sprintf(", %d processors", c.processors)
	}
	return text
}

func (c conditions) labels() map[string]string {
	labels := map[string]string{
		"program": c.name, "protocol": c.protocol.String(), "family": c.family(), "flows": strconv.Itoa(c.flows),
		"vips": strconv.Itoa(c.vips), "backends": strconv.Itoa(c.backends),
	}
	if c.processors > 1 {
		labels["processors"] = strconv.Itoa(c.processors)
	}
	if c.mode != 0 {
		labels["tracking"] = c.tracking.String()
	}
	return labels
}

// shared are the programs that are measured on two processors at once, and sharedFlows
// how many flows each has: they share counters, records of flows, and sessions.
func shared() []subject {
	return []subject{balancer(lb.L2DSR, lb.TrackingMinimal), balancer(lb.L2DSR, lb.TrackingFull), balancer(lb.NAT, lb.TrackingMinimal)}
}

const sharedFlows = 1 << 15

// group is compared within the same rounds.
type group struct {
	workload
	subjects []subject
	flows    []int
	// two is set to compare one processor with two.
	two bool
}

// String names the group.
func (g group) String() string {
	if g.two {
		return g.workload.String() + ", two processors"
	}
	return g.workload.String()
}

// conditions returns the conditions of the group's cells.
func (g group) conditions() (all []conditions) {
	for _, s := range g.subjects {
		for _, flows := range g.flows {
			all = append(all, conditions{g.workload, s, flows, 1})
			if g.two {
				all = append(all, conditions{g.workload, s, flows, 2})
			}
		}
	}
	return all
}

type plan struct {
	groups  []group
	rounds  int
	packets int // in one measurement
}

func newPlan(quick bool) plan {
	all := []subject{bare, reflector, balancer(lb.L2DSR, lb.TrackingFull)}
	for _, mode := range xdp.Limits().Forwards {
		all = append(all, balancer(mode, lb.TrackingMinimal))
	}
	flows := []int{1, 1 << 10, 1 << 16, manyFlows}
	many := []int{1 << 16, manyFlows}
	one := []subject{bare, balancer(lb.L2DSR, lb.TrackingMinimal)}
	four := slices.Clone(one)
	for _, mode := range []lb.Forward{lb.IPIP, lb.NAT, lb.DSR} {
		four = append(four, balancer(mode, lb.TrackingMinimal))
	}
	two := group{workload: workload{oneService, lb.TCP, false}, subjects: append([]subject{bare}, shared()...), flows: []int{sharedFlows}, two: true}
	if quick {
		return plan{rounds: 3, packets: 1 << 18, groups: []group{
			{workload: workload{oneService, lb.TCP, false}, subjects: all, flows: flows},
			{workload: workload{oneService, lb.TCP, true}, subjects: one, flows: []int{1, manyFlows}},
			{workload: workload{oneService, lb.UDP, false}, subjects: one, flows: []int{1, manyFlows}},
			{workload: workload{most, lb.TCP, false}, subjects: one, flows: many},
			{workload: workload{largest, lb.TCP, false}, subjects: one, flows: []int{manyFlows}},
			two,
		}}
	}
	return plan{rounds: 5, packets: 1 << 19, groups: []group{
		{workload: workload{oneService, lb.TCP, false}, subjects: all, flows: flows},
		{workload: workload{oneService, lb.TCP, true}, subjects: all, flows: []int{1, manyFlows}},
		{workload: workload{oneService, lb.UDP, false}, subjects: four, flows: []int{1, manyFlows}},
		{workload: workload{oneService, lb.UDP, true}, subjects: four, flows: []int{1, manyFlows}},
		{workload: workload{largest, lb.TCP, false}, subjects: four, flows: many},
		{workload: workload{paper, lb.TCP, false}, subjects: four, flows: many},
		{workload: workload{medium, lb.TCP, false}, subjects: four, flows: many},
		{workload: workload{most, lb.TCP, false}, subjects: four, flows: many},
		{workload: workload{most, lb.TCP, true}, subjects: four, flows: many},
		{workload: workload{most, lb.UDP, false}, subjects: four, flows: many},
		{workload: workload{most, lb.UDP, true}, subjects: four, flows: many},
		two,
	}}
}

// frameSize is the smallest that holds a TCP packet of either family.
const frameSize = 74

// client is in the blocks reserved for benchmarks (RFC 2544, appendix C.2.2, and RFC
// 5180, section 8).
func (t workload) client() netip.Addr {
	if t.ipv6 {
		return netip.MustParseAddr("2001:2::")
	}
	return netip.MustParseAddr("198.18.0.0")
}

// vip returns the VIP of service i.
func (t workload) vip(i int) lb.VIP {
	address := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
	if t.ipv6 {
		address = netip.AddrFrom16([16]byte{0: 0xfd, 2: 1, 14: byte(i >> 8), 15: byte(i)})
	}
	return lb.VIP{Address: address, Port: 80, Protocol: t.protocol}
}

// server is the address of host i.
func (t workload) server(i int) netip.Addr {
	high, low := byte((i+1)>>8), byte(i+1)
	if t.ipv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 2: 2, 14: high, 15: low})
	}
	return netip.AddrFrom4([4]byte{10, 2, high, low})
}

// service is service i for a subject.
func (t workload) service(i int, s subject) *lb.Service {
	svc := &lb.Service{VIP: t.vip(i), Forward: s.mode, Tracking: s.tracking, MinHealthy: 1}
	for j := range t.backends {
		svc.Backends = append(svc.Backends, bench.Backend(s.mode, t.server((i*t.backends+j)%hosts)))
	}
	return svc
}

// load is the packets of flows spread over the services: their first ones (opening),
// or later ones. Flows of the nth processor have clients of their own.
func (t workload) load(flows, nth int, opening bool) wire.Load {
	client := t.client().AsSlice()
	client[len(client)-3] += byte(nth)
	first, _ := netip.AddrFromSlice(client)
	return wire.Load{
		SYN: opening && t.protocol == lb.TCP,

		Destination: lb.MAC{2, 0, 0, 0, 0, 1}, Source: lb.MAC{2, 0, 0, 0, 0, 2},
		Client: first, VIP: t.vip(0), VIPs: min(t.vips, flows), Flows: flows, Size: frameSize,
	}
}

// capacity holds the services once, and all flows if the subject tracks them, as NAT
// always does.
func (t workload) capacity(s subject) xdp.Capacity {
	ring := make([]maglev.Backend, t.backends)
	for i := range ring {
		ring[i] = maglev.Backend{ID: netip.AddrPortFrom(t.server(i), 80), Weight: 1}
	}
	const chunk = 32 // a ring begins at a multiple of it
	c := xdp.Capacity{
		Services:    t.vips,
		Backends:    t.vips * t.backends,
		RingEntries: t.vips * (maglev.Size(ring) + chunk),
		Flows:       1,
		Sessions:    1,
	}
	if s.mode.Translates() {
		c.Sessions = 2 * manyFlows // with an entry for each direction
	}
	if s.tracking == lb.TrackingFull {
		c.Flows = 2 * manyFlows // an LRU table evicts long before it is full
	}
	return c
}
