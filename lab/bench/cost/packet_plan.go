// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"net/netip"
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
	whole      = shape{128, 4000}
)

// workload is the common part of all packets.
type workload struct {
	shape
	protocol lb.Protocol
	ipv6     bool
}

// String returns for example "tcp over ipv4, 1 x 255".
func (t workload) String() string {
	return fmt.Sprintf("%s over %s, %d x %d", t.protocol, t.family(), t.vips, t.backends)
}

func (t workload) family() string {
	if t.ipv6 {
		return "ipv6"
	}
	return "ipv4"
}

// subject is a program that is measured.
type subject struct {
	name     string // the forwarding mode, or that of bare or reflector
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

// conditions are those of one result.
type conditions struct {
	workload
	subject
	flows int
}

func (c conditions) labels() map[string]string {
	labels := map[string]string{
		"program": c.name, "protocol": c.protocol.String(), "family": c.family(), "flows": strconv.Itoa(c.flows),
		"vips": strconv.Itoa(c.vips), "backends": strconv.Itoa(c.backends),
	}
	if c.mode != 0 {
		labels["tracking"] = c.tracking.String()
	}
	return labels
}

// group is compared within the same rounds.
type group struct {
	workload
	subjects []subject
	flows    []int
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
	two := []subject{bare, balancer(lb.L2DSR, lb.TrackingMinimal)}
	if quick {
		return plan{rounds: 4, packets: 1 << 18, groups: []group{
			{workload{oneService, lb.TCP, false}, all, flows},
			{workload{oneService, lb.TCP, true}, two, []int{1, manyFlows}},
			{workload{oneService, lb.UDP, false}, two, []int{1, manyFlows}},
			{workload{whole, lb.TCP, false}, two, []int{manyFlows}},
		}}
	}
	return plan{rounds: 5, packets: 1 << 19, groups: []group{
		{workload{oneService, lb.TCP, false}, all, flows},
		{workload{oneService, lb.TCP, true}, all, []int{1, manyFlows}},
		{workload{oneService, lb.UDP, false}, two, []int{1, manyFlows}},
		{workload{whole, lb.TCP, false}, all, flows},
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

// vip is that of service i.
func (t workload) vip(i int) lb.VIP {
	address := netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})
	if t.ipv6 {
		address = netip.AddrFrom16([16]byte{0: 0xfd, 2: 1, 15: byte(i)})
	}
	return lb.VIP{Address: address, Port: 80, Protocol: t.protocol}
}

// server is the address of backend i of every service.
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
		svc.Backends = append(svc.Backends, bench.Backend(s.mode, t.server(j)))
	}
	return svc
}

// load is the packets of flows spread over the services: their first ones (opening),
// or later ones.
func (t workload) load(flows int, opening bool) wire.Load {
	return wire.Load{
		SYN: opening && t.protocol == lb.TCP,

		Destination: lb.MAC{2, 0, 0, 0, 0, 1}, Source: lb.MAC{2, 0, 0, 0, 0, 2},
		Client: t.client(), VIP: t.vip(0), VIPs: min(t.vips, flows), Flows: flows, Size: frameSize,
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
		c.Sessions = 4 * manyFlows // of which half is for those that aren't established
	}
	if s.tracking == lb.TrackingFull {
		c.Flows = 2 * manyFlows // an LRU table evicts long before it is full
	}
	return c
}
