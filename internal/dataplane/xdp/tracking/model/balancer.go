// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/maglev"
)

// Backend is a backend of a service as the agent knows it.
type Backend struct {
	ID netip.AddrPort
	// Weight is as configured. Usable is whether the backend can be reached.
	Weight int
	Usable bool
}

// Step is what an update did to the ring.
type Step int

// The steps: none; flows are learned first; taken after learning; taken at once.
const (
	Still Step = iota
	Waiting
	Planned
	Forced
)

// Balancer is one balancer of one service. It counts time in any unit that
// tracking does.
type Balancer struct {
	Program
	Seed uint64
	// Idle is how long a flow may be silent, Learn how long flows are learned
	// before a planned change; both as the service's.
	Idle, Learn time.Duration
	// learning is since when a step has been waiting, and due when it will be
	// taken; waits says whether one is.
	learning, due time.Duration
	waits         bool
}

// New returns a balancer of a service that has had no backend.
func New(seed uint64, idle, learn time.Duration, full bool) *Balancer {
	return &Balancer{
		Program: Program{Full: full, ring: &tracking.Ring{}, slots: map[uint16]*seat{}, flows: map[uint64]*record{}},
		Seed:    seed, Idle: idle, Learn: learn,
	}
}

// Due returns when the step that waits will be taken by another Update.
func (b *Balancer) Due() (at time.Duration, waits bool) { return b.due, b.waits }

// Update takes the service's backends, and reachable says which backends that
// have left can still be reached.
func (b *Balancer) Update(backends []Backend, reachable func(netip.AddrPort) bool, now time.Duration) Step {
	served, lost := b.seatAll(backends, reachable)
	desired := b.build()
	if b.wait(desired, !served || lost, now) {
		b.ring = b.ring.Learn(desired, now)
		return Waiting
	}
	old := b.ring
	b.ring = old.Next(desired, now)
	at, all := old.Learned(desired, b.Learn)
	switch {
	case b.ring == old:
		return Still
	case b.Learn > 0 && all && now >= at:
		return Planned
	}
	return Forced
}

// seatAll gives every backend a slot and says what is known of those that have
// one. It reports whether one that the ring names could be used until now, and
// whether one can't any more.
func (b *Balancer) seatAll(backends []Backend, reachable func(netip.AddrPort) bool) (served, lost bool) {
	before := map[*seat]bool{}
	for _, s := range b.slots {
		before[s] = s.usable
		s.wanted = false
		if s.known {
			s.usable = reachable(s.id)
		}
	}
	backends = slices.SortedFunc(slices.Values(backends), func(x, y Backend) int { return x.ID.Compare(y.ID) })
	for _, one := range backends {
		s := b.seat(one.ID)
		s.usable, s.weight, s.wanted, s.known = one.Usable, one.Weight, true, true
	}
	for _, e := range b.ring.Entries {
		s := b.slots[tracking.Slot(e)]
		if s != nil && before[s] {
			served, lost = true, lost || !s.usable
		}
	}
	return served, lost
}

// seat finds a backend's slot or gives it the first free one.
func (b *Balancer) seat(id netip.AddrPort) *seat {
	for _, s := range b.slots {
		if s.id == id {
			return s
		}
	}
	free := uint16(0)
	for b.slots[free] != nil {
		free++
	}
	b.slots[free] = &seat{id: id}
	return b.slots[free]
}

// build returns the slots of the ring that the present backends ask for. A
// backend that can't be used counts for the ring's size only.
func (b *Balancer) build() []uint16 {
	var numbers []uint16
	var ring []maglev.Backend
	for _, n := range slices.SortedFunc(maps.Keys(b.slots), func(x, y uint16) int { return b.slots[x].id.Compare(b.slots[y].id) }) {
		if b.slots[n].wanted {
			numbers = append(numbers, n)
			ring = append(ring, maglev.Backend{ID: b.slots[n].id, Weight: b.slots[n].weight})
		}
	}
	size := maglev.Size(ring)
	for i, n := range numbers {
		if !b.slots[n].usable {
			ring[i].Weight = 0
		}
	}
	entries, err := maglev.Build(b.Seed, size, ring)
	if err != nil {
		return nil // weights out of range: the data plane refuses them too
	}
	for i, index := range entries {
		entries[i] = numbers[index]
	}
	return entries
}

// wait decides whether flows have to be learned before the ring changes.
func (b *Balancer) wait(desired []uint16, forced bool, now time.Duration) bool {
	started := b.waits
	b.waits = false
	if b.Learn == 0 || forced {
		return false
	}
	at, all := b.ring.Learned(desired, b.Learn)
	if !all {
		at = now + b.Learn
	}
	if started {
		at = min(at, b.learning+2*b.Learn)
	}
	if now >= at {
		return false
	}
	if !started {
		b.learning = now
	}
	b.due, b.waits = at, true
	return true
}

// Sweep forgets what nobody needs: records that are idle or of stable entries,
// the past of entries that nobody disagrees with, and backends that have left
// and that neither the ring nor a record names.
func (b *Balancer) Sweep(now time.Duration) {
	disagree := make([]bool, len(b.ring.Entries))
	for key, r := range b.flows {
		if now-r.seen > b.Idle || b.slots[r.slot] != r.seat {
			delete(b.flows, key)
			continue
		}
		if len(disagree) > 0 {
			place := b.ring.Place(r.place)
			disagree[place] = disagree[place] || r.slot != tracking.Slot(b.ring.Entries[place])
		}
	}
	if !b.waits {
		b.ring = b.ring.Settle(disagree, b.Idle, now)
	}
	for key, r := range b.flows {
		stable := len(b.ring.Entries) == 0 || b.ring.Entries[b.ring.Place(r.place)]&tracking.Unstable == 0
		if stable && !b.Full {
			delete(b.flows, key)
		}
	}
	b.unseat()
}

// unseat frees the slots of backends that have left and that nothing names.
func (b *Balancer) unseat() {
	named := map[uint16]bool{}
	b.ring.Uses(func(slot uint16) { named[slot] = true })
	for _, r := range b.flows {
		named[r.slot] = true
	}
	for n, s := range b.slots {
		if !s.wanted && !named[n] {
			delete(b.slots, n)
		}
	}
}

// Restart forgets what only the agent's memory had. Backends are as they were
// until the next Update.
func (b *Balancer) Restart(now time.Duration) {
	b.ring = tracking.Adopt(b.ring.Entries, b.ring.Previous, now)
	b.waits = false
	for _, s := range b.slots {
		s.known, s.wanted = false, true
	}
}
