// SPDX-License-Identifier: Apache-2.0

// Package model says a second time what just enough tracking does with one
// service (DESIGN.md §5.2): which backend a packet is sent to, what is recorded
// and what is forgotten. It is there to be compared with.
//
// Program is the packet's side, as in bpf/flow.h and bpf/ring.h; Balancer adds
// the agent's side, as in the data plane's slots, steps and sweeps. Both are
// written to be obvious, with maps and pointers where the product has indexes
// and generations. They share with the product what has tests of its own: how a
// ring's marks change (package tracking) and how a ring is built (package
// maglev). History makes random histories of a service and checks what is
// promised to its clients, on a Balancer and on anything that claims to decide
// like one. The package is pure, and only tests use it.
package model

import (
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
)

// Phase is what a packet says about its flow, as in bpf/parse.h.
type Phase int

// The phases: a TCP segment that is no SYN, a TCP SYN, and a UDP datagram.
const (
	Open Phase = iota
	Opening
	Datagram
)

// String returns the phase as it is called in a history.
func (p Phase) String() string { return [...]string{"open", "opening", "datagram"}[p] }

// Flow is what hashing makes of a five-tuple.
type Flow struct {
	// Key is the five-tuple's hash, under which the flow is recorded.
	Key uint64
	// Place is the upper half of the hash that picks the ring entry.
	Place uint32
}

// seat is a backend in a slot, from when it is given the slot until it leaves
// it. Records name seats, so who gets the slot next doesn't inherit them.
type seat struct {
	id     netip.AddrPort
	usable bool
	// weight is that of the backend as it is configured; wanted is whether it is
	// configured at all.
	weight int
	wanted bool
	// known is whether this agent has configured the backend, or only one before.
	known bool
}

// record is a recorded flow.
type record struct {
	slot  uint16
	seat  *seat
	place uint32
	seen  time.Duration
}

// Counts are the counters of bpf/types.h's flow_stats.
type Counts struct{ Hits, Misses, Inserts uint64 }

// Program decides about packets.
type Program struct {
	// Full is whether every flow is tracked.
	Full   bool
	Counts Counts
	ring   *tracking.Ring
	slots  map[uint16]*seat
	flows  map[uint64]*record
}

// Send decides about a packet and says which backend gets it, if there is one.
func (p *Program) Send(flow Flow, phase Phase, now time.Duration) (id netip.AddrPort, ok bool) {
	if len(p.ring.Entries) == 0 {
		return id, false
	}
	entry := p.ring.Entries[p.ring.Place(flow.Place)]
	unstable := entry&tracking.Unstable != 0
	if !unstable && !p.Full {
		if s := p.slots[entry]; s != nil {
			id = s.id
		}
		return id, true // without a look: an entry that is stable has a backend
	}
	known := p.flows[flow.Key]
	if phase != Opening {
		if known != nil && p.slots[known.slot] == known.seat && known.seat.usable {
			known.seen = now
			p.Counts.Hits++
			return known.seat.id, true
		}
		p.Counts.Misses++
	}
	slot := tracking.Slot(entry)
	if phase == Open && unstable {
		if before := p.slots[p.before(flow.Place)]; before != nil && before.usable {
			slot = p.before(flow.Place)
		}
	}
	chosen := p.slots[slot]
	if chosen == nil {
		return id, false
	}
	if known == nil {
		p.Counts.Inserts++
		known = &record{place: flow.Place}
		p.flows[flow.Key] = known
	}
	known.slot, known.seat, known.seen = slot, chosen, now
	return chosen.id, true
}

// before is the slot of a flow that is older than the changes of its entry.
func (p *Program) before(place uint32) uint16 {
	old := tracking.Ring{Entries: p.ring.Previous}
	return old.Entries[old.Place(place)]
}

// Recorded counts the recorded flows.
func (p *Program) Recorded() int { return len(p.flows) }

// Unstable counts the ring's unstable entries.
func (p *Program) Unstable() int { return p.ring.Unstable() }

// Seats counts the backends that have a slot.
func (p *Program) Seats() int { return len(p.slots) }

// Remembers reports whether a flow is recorded with a backend that lives.
func (p *Program) Remembers(flow Flow) bool {
	known := p.flows[flow.Key]
	return known != nil && p.slots[known.slot] == known.seat && known.seat.usable
}
