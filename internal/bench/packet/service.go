// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"net/netip"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/generator"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
)

// frameSize holds a TCP packet of either family; smaller frames would be cut.
const frameSize = 74

// clients are from the blocks that are set aside for benchmarks (RFC 2544,
// appendix C.2.2, and RFC 5180, section 8).
func (t traffic) client() netip.Addr {
	if t.ipv6 {
		return netip.MustParseAddr("2001:2::")
	}
	return netip.MustParseAddr("198.18.0.0")
}

// vip is that of service i.
func (t traffic) vip(i int) lb.VIP {
	address := netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})
	if t.ipv6 {
		address = netip.AddrFrom16([16]byte{0: 0xfd, 2: 1, 15: byte(i)})
	}
	return lb.VIP{Address: address, Port: 80, Protocol: t.protocol}
}

// server is the address of backend i of every service.
func (t traffic) server(i int) netip.Addr {
	high, low := byte((i+1)>>8), byte(i+1)
	if t.ipv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 2: 2, 14: high, 15: low})
	}
	return netip.AddrFrom4([4]byte{10, 2, high, low})
}

// service is number i, as a subject balances it.
func (t traffic) service(i int, s subject) *lb.Service {
	svc := &lb.Service{VIP: t.vip(i), Forward: s.mode, Tracking: s.tracking, MinHealthy: 1}
	for j := range t.backends {
		svc.Backends = append(svc.Backends, bench.Backend(s.mode, t.server(j)))
	}
	return svc
}

// load is the packets of a number of flows, spread over the services: those that
// open them, or others.
func (t traffic) load(flows int, opening bool) generator.Load {
	return generator.Load{
		SYN: opening && t.protocol == lb.TCP,

		Destination: lb.MAC{2, 0, 0, 0, 0, 1}, Source: lb.MAC{2, 0, 0, 0, 0, 2},
		Client: t.client(), VIP: t.vip(0), VIPs: min(t.vips, flows), Flows: flows, Size: frameSize,
	}
}

// capacity is that of tables which hold the services once, and every flow if
// flows are recorded, as NAT always does.
func (t traffic) capacity(s subject) xdp.Capacity {
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
		c.Sessions = 2 * manyFlows
	}
	if s.tracking == lb.TrackingFull {
		c.Flows = 2 * manyFlows // an LRU table evicts long before it is full
	}
	return c
}
