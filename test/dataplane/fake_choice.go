// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// choice is a Fake's memory of a service's flows.
type choice struct {
	// flows are those with a backend of their own: by the whole client, or by its address.
	flows map[netip.AddrPort]lb.BackendID
	// counts are the flows of each backend.
	counts map[lb.BackendID]int
	// admitted counts new flows, in all and of each client, as if within one second.
	admitted   int
	admittedOf map[netip.Addr]int
}

func newChoice() *choice {
	return &choice{
		flows: map[netip.AddrPort]lb.BackendID{}, counts: map[lb.BackendID]int{}, admittedOf: map[netip.Addr]int{},
	}
}

// admits counts a flow, and reports whether the limits of new flows let it pass.
func (s *service) admits(client netip.Addr) bool {
	l, c := s.Limits, s.choice
	if l.NewFlows > 0 && c.admitted >= l.NewFlows || l.NewFlowsPerSource > 0 && c.admittedOf[client] >= l.NewFlowsPerSource {
		return false
	}
	c.admitted++
	c.admittedOf[client]++
	return true
}

// leader is the service that chooses backends for s: with firewall marks the first of all
// that have the mark.
func (d *Fake) leader(s *service) *service {
	first := s
	for _, other := range d.services {
		if s.FirewallMark != 0 && other.FirewallMark == s.FirewallMark && other.VIP.Compare(first.VIP) < 0 {
			first = other
		}
	}
	return first
}

// like returns the backend of s with the address of another service's.
func (s *service) like(id lb.BackendID) lb.BackendID {
	for _, b := range s.Backends {
		if b.Address == id.Addr() {
			return b.ID()
		}
	}
	return id
}

// choose returns the backend of a client's packet.
func (s *service) choose(client netip.AddrPort) lb.BackendID {
	if !s.remembers() {
		return s.hashed(client, 0)
	}
	key := client
	if s.Affinity == lb.AffinityClient {
		key = netip.AddrPortFrom(client.Addr(), 0)
	}
	if id, known := s.choice.flows[key]; known && s.inUse(id) {
		return id
	}
	id := s.schedule(client)
	s.choice.flows[key] = id
	s.choice.counts[id]++
	return id
}

// remembers reports whether the backend of a flow depends on earlier flows.
func (s *service) remembers() bool {
	for _, b := range s.Backends {
		if b.MaxConnections > 0 {
			return true
		}
	}
	return s.Scheduler != lb.SchedulerMaglev && s.Scheduler != lb.SchedulerSH || s.AffinityTimeout > 0
}

func (s *service) inUse(id lb.BackendID) bool {
	for _, b := range s.programmed.Backends {
		if b.ID == id {
			return b.InUse
		}
	}
	return false
}

// schedule chooses the backend of a new flow. As flows don't end, turns and the fewest
// connections are the same.
func (s *service) schedule(client netip.AddrPort) lb.BackendID {
	if s.Scheduler == lb.SchedulerMaglev {
		for skip := range s.ring {
			if id := s.hashed(client, uint64(skip)); !s.full(id) {
				return id
			}
		}
		return s.hashed(client, 0)
	}
	var best lb.BackendID
	lowest := -1.0
	for i, b := range s.Backends {
		weight := 1
		if s.Scheduler == lb.SchedulerWRR || s.Scheduler == lb.SchedulerWLC {
			weight = b.Weight
		}
		load := float64(s.choice.counts[b.ID()]+1) / float64(max(1, weight))
		if s.programmed.Backends[i].InUse && !s.full(b.ID()) && (lowest < 0 || load < lowest) {
			best, lowest = b.ID(), load
		}
	}
	return best
}

// full reports whether a backend has as many connections as it may have.
func (s *service) full(id lb.BackendID) bool {
	for _, b := range s.Backends {
		if b.ID() == id {
			return b.MaxConnections > 0 && s.choice.counts[id] >= b.MaxConnections
		}
	}
	return false
}

// hashed returns the backend of the ring entry of a client's flow, or of one behind it.
func (s *service) hashed(client netip.AddrPort, skip uint64) lb.BackendID {
	return s.Backends[s.ring[(s.hash(client)+skip)%uint64(len(s.ring))]].ID()
}

// hash returns the hash of the packets that belong together.
func (s *service) hash(client netip.AddrPort) uint64 {
	port := client.Port()
	if s.Affinity == lb.AffinityClient || s.Scheduler == lb.SchedulerSH {
		port = 0
	}
	address := client.Addr().As16()
	h := fnv.New64a()
	h.Write(address[:])
	h.Write(binary.BigEndian.AppendUint16(nil, port))
	return h.Sum64()
}
