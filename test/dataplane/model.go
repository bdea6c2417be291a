// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/maglev"
)

// Phase is the phase of its flow that a packet shows, as in bpf/parse/parse.h.
type Phase int

// The phases: a TCP packet that isn't a SYN, a TCP SYN, and a UDP datagram.
const (
	Open Phase = iota
	Opening
	Datagram
)

func (p Phase) String() string { return [...]string{"open", "opening", "datagram"}[p] }

// Flow has the hashes of a five-tuple.
type Flow struct {
	// Key is the five-tuple's hash, under which the flow is recorded.
	Key uint64
	// Place is the upper half of the hash that picks the ring entry.
	Place uint32
}

// Backend is a backend of a service as the agent knows it.
type Backend struct {
	ID netip.AddrPort
	// Weight is as configured. Usable is whether the backend can be reached.
	Weight int
	Usable bool
}

// Counts are the counters of bpf/core/types.h's flow_stats.
type Counts struct{ Hits, Misses, Inserts uint64 }

// seat is a backend in a slot, from when it is given the slot until it leaves
// it. Records name seats, so the slot's next backend doesn't inherit them.
type seat struct {
	Backend
	// wanted is whether the backend is configured; known is whether this agent
	// has configured it, or only an earlier one.
	wanted, known bool
	// begins is whether it takes new flows.
	begins bool
}

// record is a recorded flow.
type record struct {
	slot  uint16
	seat  *seat
	place uint32
	seen  time.Duration
	open  bool // more than a SYN has come
	// opening is the seat of a SYN for an open flow whose own takes no new flows, nil if there
	// was none since.
	openingSlot uint16
	opening     *seat
}

// step is an update's effect on the ring.
type step int

// The steps: none; flows are learned first; taken after learning; taken at once.
const (
	still step = iota
	waiting
	planned
	forced
)

// model is a second implementation of just enough tracking for one service
// (docs/design/tracking.md): which backend a packet is sent to, as in
// bpf/pick/flow.h and bpf/pick/ring.h, and the agent's part, as in the data
// plane's slots, steps and sweeps. It is written to be obvious, with maps and
// pointers where the product has indexes and generations. It shares with the
// product parts that have tests of their own: how a ring's marks change (tracking)
// and how a ring is built (maglev).
type model struct {
	// full is whether every flow is tracked.
	full   bool
	counts Counts
	ring   *tracking.Ring
	slots  map[uint16]*seat
	flows  map[uint64]*record
	// learn is how long flows are learned before a planned change.
	learn time.Duration
	// learning is since when a step has been waiting, and due when it will be
	// taken by another update; waits says whether one is.
	learning, due time.Duration
	waits         bool
}

// newModel returns a model of a service that has had no backend.
func newModel(learn time.Duration, full bool) *model {
	return &model{full: full, learn: learn, ring: &tracking.Ring{}, slots: map[uint16]*seat{}, flows: map[uint64]*record{}}
}

// send decides about a packet and says which backend gets it, if there is one.
func (m *model) send(flow Flow, phase Phase, now time.Duration) (id netip.AddrPort, ok bool) {
	if len(m.ring.Entries) == 0 {
		return id, false
	}
	entry := m.ring.Entries[m.ring.Place(flow.Place)]
	unstable := entry&tracking.Unstable != 0
	if !unstable && !m.full {
		if s := m.slots[entry]; s != nil {
			id = s.ID
		}
		return id, true // without a look: an entry that is stable has a backend
	}
	known := m.flows[flow.Key]
	lost := false // the backend of the SYN that the segment follows
	if phase != Opening && known != nil && known.opening != nil {
		if lost = !m.lives(known.openingSlot, known.opening); !lost {
			known.slot, known.seat, known.opening = known.openingSlot, known.opening, nil
		}
	}
	if !lost && m.remembers(flow) && (phase != Opening || known.open && known.seat.begins) {
		known.seen, known.open, known.opening = now, true, nil
		m.counts.Hits++
		return known.seat.ID, true
	}
	if phase != Opening {
		m.counts.Misses++
	}
	slot := tracking.Slot(entry)
	if phase == Open && unstable {
		old := tracking.Ring{Entries: m.ring.Previous}
		earlier := old.Entries[old.Place(flow.Place)]
		if s := m.slots[earlier]; s != nil && s.Usable {
			slot = earlier
		}
	}
	chosen := m.slots[slot]
	if chosen == nil {
		return id, false
	}
	if known == nil {
		m.counts.Inserts++
		known = &record{place: flow.Place}
		m.flows[flow.Key] = known
	}
	if phase == Opening && known.open && m.remembers(flow) {
		known.openingSlot, known.opening, known.seen = slot, chosen, now // until the next segment confirms it
		return chosen.ID, true
	}
	known.slot, known.seat, known.seen, known.open, known.opening = slot, chosen, now, phase != Opening, nil
	return chosen.ID, true
}

// remembers reports whether a flow is recorded with a backend that lives.
func (m *model) remembers(flow Flow) bool {
	known := m.flows[flow.Key]
	return known != nil && m.lives(known.slot, known.seat)
}

// lives reports whether a seat that a record names is still there, and usable.
func (m *model) lives(slot uint16, s *seat) bool { return m.slots[slot] == s && s.Usable }

// named are the slots that a record names.
func (m *model) named(r *record) []uint16 {
	if r.opening != nil && m.slots[r.openingSlot] == r.opening {
		return []uint16{r.slot, r.openingSlot}
	}
	return []uint16{r.slot}
}

// update takes the service's backends, and reachable says which backends that
// have left can still be reached.
func (m *model) update(backends []Backend, reachable func(netip.AddrPort) bool, now time.Duration) step {
	served, lost := m.seatAll(backends, reachable)
	desired := m.build()
	if m.wait(desired, !served || lost, now) {
		m.ring = m.ring.Learn(desired, now)
		return waiting
	}
	old := m.ring
	m.ring = old.Next(desired, now)
	at, all := old.Learned(desired, m.learn)
	switch {
	case m.ring == old:
		return still
	case m.learn > 0 && all && now >= at:
		return planned
	}
	return forced
}

// seatAll gives every backend a slot. It reports whether a backend that the ring
// names was usable until now, and whether one of those no longer is.
func (m *model) seatAll(backends []Backend, reachable func(netip.AddrPort) bool) (served, lost bool) {
	before := map[*seat]bool{}
	for _, s := range m.slots {
		before[s] = s.Usable
		s.wanted, s.begins = false, false
		if s.known {
			s.Usable = reachable(s.ID)
		}
	}
	backends = slices.SortedFunc(slices.Values(backends), func(x, y Backend) int { return x.ID.Compare(y.ID) })
	for _, b := range backends {
		*m.seat(b.ID) = seat{Backend: b, wanted: true, known: true, begins: b.Weight > 0}
	}
	for _, e := range m.ring.Entries {
		if s := m.slots[tracking.Slot(e)]; before[s] {
			served, lost = true, lost || !s.Usable
		}
	}
	return served, lost
}

// seat finds a backend's slot or gives it the first free one.
func (m *model) seat(id netip.AddrPort) *seat {
	for _, s := range m.slots {
		if s.ID == id {
			return s
		}
	}
	free := uint16(0)
	for m.slots[free] != nil {
		free++
	}
	m.slots[free] = &seat{}
	return m.slots[free]
}

// build returns the slots of the ring that the present backends ask for. A
// backend that can't be used counts for the ring's size only.
func (m *model) build() []uint16 {
	byID := func(x, y uint16) int { return m.slots[x].ID.Compare(m.slots[y].ID) }
	var numbers []uint16
	var ring []maglev.Backend
	for _, n := range slices.SortedFunc(maps.Keys(m.slots), byID) {
		if s := m.slots[n]; s.wanted {
			numbers = append(numbers, n)
			ring = append(ring, maglev.Backend{ID: s.ID, Weight: s.Weight})
		}
	}
	size := maglev.Size(ring)
	for i, n := range numbers {
		if !m.slots[n].Usable {
			ring[i].Weight = 0
		}
	}
	entries, err := maglev.Build(Seed, size, ring)
	if err != nil {
		return nil // weights out of range: the data plane refuses them too
	}
	for i, index := range entries {
		entries[i] = numbers[index]
	}
	return entries
}

// wait decides whether flows have to be learned before the ring changes.
func (m *model) wait(desired []uint16, forced bool, now time.Duration) bool {
	started := m.waits
	m.waits = false
	if m.learn == 0 || forced {
		return false
	}
	at, all := m.ring.Learned(desired, m.learn)
	if !all {
		at = now + m.learn
	}
	if started {
		at = min(at, m.learning+2*m.learn)
	}
	if now >= at {
		return false
	}
	if !started {
		m.learning = now
	}
	m.due, m.waits = at, true
	return true
}

// sweep removes unneeded state: records that are idle or of stable entries,
// the past of entries that all records agree with, and backends that have left
// and that neither the ring nor a record names.
func (m *model) sweep(now time.Duration) {
	disagree := make([]bool, len(m.ring.Entries))
	for key, r := range m.flows {
		if now-r.seen > Idle || m.slots[r.slot] != r.seat {
			delete(m.flows, key)
			continue
		}
		if len(disagree) > 0 {
			place := m.ring.Place(r.place)
			for _, slot := range m.named(r) {
				disagree[place] = disagree[place] || slot != tracking.Slot(m.ring.Entries[place])
			}
		}
	}
	if !m.waits {
		m.ring = m.ring.Settle(disagree, Idle, now)
	}
	named := map[uint16]bool{}
	m.ring.Uses(func(slot uint16) { named[slot] = true })
	for key, r := range m.flows {
		if !m.full && (len(m.ring.Entries) == 0 || m.ring.Entries[m.ring.Place(r.place)]&tracking.Unstable == 0) {
			delete(m.flows, key)
			continue
		}
		for _, slot := range m.named(r) {
			named[slot] = true
		}
	}
	maps.DeleteFunc(m.slots, func(n uint16, s *seat) bool { return !s.wanted && !named[n] })
}

// restart forgets the agent's state outside of the tables. Backends are as they
// were until the next update.
func (m *model) restart(now time.Duration) {
	m.ring = tracking.Adopt(m.ring.Entries, m.ring.Previous, now)
	m.waits = false
	for _, s := range m.slots {
		s.known, s.wanted = false, true
	}
}

// state returns the counts.
func (m *model) state() State {
	return State{Counts: m.counts, Recorded: len(m.flows), Unstable: m.ring.Unstable(), Seats: len(m.slots)}
}
