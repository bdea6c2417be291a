// SPDX-License-Identifier: Apache-2.0

package table

import (
	"cmp"
	"time"

	"github.com/cilium/ebpf"
)

// Capacity is how much the tables hold; they are made at their full size. A
// change of a service needs room for its old and its new version at the same
// time.
type Capacity struct {
	Services    int
	Backends    int // of all services together, those that left not long ago included
	RingEntries int // of all services together
	Flows       int // recorded flows
	Sources     int // prefixes of all services' lists together
	// Limited is the number of clients whose new flows are counted, and of UDP
	// flows that services with limits have let in.
	Limited int
	// Clients is the number of those that services remember.
	Clients int
	// Sessions of NAT.
	Sessions int
}

// maxMembers is the number of nodes with which services are shared, once for each of
// the modes that they share them by.
const maxMembers = 1 << 15

// maxEgress is the number of egresses: of interfaces with the modes, MTUs, VLANs and local
// addresses with which backends are reached through them.
const maxEgress = 1 << 15

// maxFragments is the number of fragmented packets on their way.
const maxFragments = 1 << 14

// ringsFor is the number of ring entries for that many backends and services. A ring has at
// most 60 entries for each of equal backends, and at least 127; the previous one is as large.
func ringsFor(backends, services int) int { return max(128*backends, 256*services) }

// DefaultCapacity returns the capacity of a Config without one. Ring entries follow
// from the rest.
func DefaultCapacity() Capacity {
	return Capacity{Services: 1 << 13, Backends: 1 << 17, Flows: 1 << 18, Sources: 1 << 17, Limited: 1 << 16, Clients: 1 << 16, Sessions: 1 << 18}
}

// OrDefault replaces fields that are 0.
func (c Capacity) OrDefault() Capacity {
	d := DefaultCapacity()
	c = Capacity{
		RingEntries: c.RingEntries,
		Services:    cmp.Or(c.Services, d.Services),
		Backends:    cmp.Or(c.Backends, d.Backends),
		Flows:       cmp.Or(c.Flows, d.Flows),
		Sources:     cmp.Or(c.Sources, d.Sources),
		Limited:     cmp.Or(c.Limited, d.Limited),
		Clients:     cmp.Or(c.Clients, d.Clients),
		Sessions:    cmp.Or(c.Sessions, d.Sessions),
	}
	c.RingEntries = cmp.Or(c.RingEntries, ringsFor(c.Backends, c.Services))
	return c
}

// Least times in which all processors together fill a table with new records. A flow's second
// packet comes within the time of flows; see also CONFIRM_INTERVAL of bpf/pick/flow.h.
const (
	flowFillTime   = 3 * time.Second
	clientFillTime = time.Minute
)

// RecordInterval is the least time in nanoseconds between new flow records of a
// processor, and ClientInterval between new records of clients.
func (c Capacity) RecordInterval() uint64 { return interval(flowFillTime, c.Flows) }

// ClientInterval is described with RecordInterval.
func (c Capacity) ClientInterval() uint64 { return interval(clientFillTime, c.Clients) }

func interval(fill time.Duration, records int) uint64 {
	return uint64(int(fill) * ebpf.MustPossibleCPU() / records)
}

// set writes the sizes of the tables.
func (c Capacity) set(spec *ebpf.CollectionSpec) {
	for name, entries := range map[string]int{
		BalancerMapVips:           VIPPlaces(c.Services),
		BalancerMapServices:       c.Services + 1, // none has number 0
		BalancerMapTunnelEnds:     maxTunnelEnds,
		BalancerMapRings:          c.RingEntries / int(ringChunk),
		BalancerMapBackends:       c.Backends,
		BalancerMapBackendDetails: c.Backends,
		BalancerMapRemotes:        c.Backends,
		BalancerMapEgress:         maxEgress,
		BalancerMapBackendStats:   int(trafficChunks(uint32(counters(c.Backends)))),
		BalancerMapNewFlows:       int(trafficChunks(uint32(counters(c.Backends)))),
		BalancerMapNewFlowsBefore: int(trafficChunks(uint32(counters(c.Backends))) * trafficChunk),
		BalancerMapFlows:          c.Flows,
		BalancerMapFlowsPending:   c.Flows,
		BalancerMapFlowStats:      c.Services + 1,
		BalancerMapSources:        c.Sources,
		BalancerMapLimitSources:   c.Limited,
		BalancerMapLimitFlows:     c.Limited,
		BalancerMapClients:        c.Clients,
		BalancerMapClientIdle:     c.Services + 1,
		BalancerMapServers:        c.Backends,
		BalancerMapAddresses:      c.Services,
		BalancerMapPeers:          maxMembers,
		BalancerMapFragments:      maxFragments,
		BalancerMapServiceDetails: c.Services + 1,
		BalancerMapLookups:        c.Services + 1,
		BalancerMapMtuAnswers:     c.Services + 1,
	} {
		spec.Maps[name].MaxEntries = uint32(entries)
	}
	setSessions(spec, c.Sessions)
}

// setSessions writes the sizes of the tables of sessions.
func setSessions(spec *ebpf.CollectionSpec, sessions int) {
	spec.Maps[BalancerMapNatSessions].MaxEntries = uint32(sessionPlaces(2 * sessions)) // one for each direction
	spec.Maps[BalancerMapNatPending].MaxEntries = uint32(sessionPlaces(sessions))
}
