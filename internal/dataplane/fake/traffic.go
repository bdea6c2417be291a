// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"net/netip"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// FrameSize is the number of bytes that Probe counts for a packet.
const FrameSize = 64

// Probe balances one packet from client to vip and counts it. It returns the
// backend that gets it, or false if the packet is none of the data plane's,
// the client is denied or no backend is in use.
func (d *DataPlane) Probe(vip lb.VIP, client netip.AddrPort) (lb.BackendID, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, exists := d.services[vip]
	switch {
	case !exists:
		d.exits["pass"]++
		return lb.BackendID{}, false
	case !s.Sources.Allows(client.Addr()):
		d.exits["source_denied"]++
		return lb.BackendID{}, false
	case len(s.ring) == 0:
		d.exits["no_backend"]++
		return lb.BackendID{}, false
	}
	d.exits["forward"]++
	id := s.Backends[s.ring[s.hash(client)%uint64(len(s.ring))]].ID()
	packet := dataplane.Traffic{Packets: 1, Bytes: FrameSize}
	s.total = s.total.Add(packet)
	s.backends[id] = s.backends[id].Add(packet)
	return id, true
}

// hash returns the hash of the packets that belong together.
func (s *service) hash(client netip.AddrPort) uint64 {
	port := client.Port()
	if s.Affinity == lb.AffinityClient {
		port = 0
	}
	address := client.Addr().As16()
	h := fnv.New64a()
	h.Write(address[:])
	h.Write(binary.BigEndian.AppendUint16(nil, port))
	return h.Sum64()
}

// SetFlows says how many live flows a backend of a service has recorded.
func (d *DataPlane) SetFlows(vip lb.VIP, id lb.BackendID, count int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flows[vip] == nil {
		d.flows[vip] = map[lb.BackendID]int{}
	}
	d.flows[vip][id] = count
}

// CountFlows returns what SetFlows said.
func (d *DataPlane) CountFlows(ctx context.Context) (dataplane.FlowCounts, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := dataplane.FlowCounts{}
	for vip, backends := range d.flows {
		counts[vip] = maps.Clone(backends)
	}
	return counts, ctx.Err()
}

// Stats returns the counters that Probe moves.
func (d *DataPlane) Stats(ctx context.Context) (dataplane.Stats, error) {
	if err := ctx.Err(); err != nil {
		return dataplane.Stats{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	stats := dataplane.Stats{Exits: maps.Clone(d.exits), Services: map[lb.VIP]dataplane.ServiceStats{}}
	for vip, s := range d.services {
		stats.Services[vip] = dataplane.ServiceStats{Traffic: s.total, Backends: maps.Clone(s.backends)}
	}
	return stats, nil
}
