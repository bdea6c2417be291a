// SPDX-License-Identifier: Apache-2.0

// Package tracking decides which entries of a service's ring are unstable, and
// their earlier backends, while backends change.
//
// It is the agent's half of just enough tracking (docs/design/tracking.md, after
// "Just Enough Tracking", CoNEXT 2021, and Beamer, NSDI 2018); the program's half is
// bpf/pick/flow.h. The data plane calls it when a Maglev ring changes, and with the
// flows that it has read, so that entries become stable again. The package is pure.
//
// Invariant: a flow without a record that has sent a packet within the idle time-out
// began on its entry before the entry became unstable, and Previous names the
// backend of the entry at that time.
package tracking

import (
	"slices"
	"time"
)

// An entry is the slot of a backend within its service, with or without the
// mark Unstable. None is the slot of an entry that has no backend.
const (
	Unstable = 1 << 15
	None     = Unstable - 1
)

// Slot returns the slot of an entry.
func Slot(entry uint16) uint16 { return entry &^ Unstable }

// Ring is a service's ring with its recent past. It is immutable; the zero
// value is the ring of a service that has had no backend. Times are since
// anything, as long as it stays the same.
type Ring struct {
	// Entries are slots with their marks.
	Entries []uint16
	// Previous has the slots that flows older than the entries' changes were on.
	// It may have another length than Entries: the length of the ring when the
	// oldest of those changes was made. It is nil if no entry is unstable.
	Previous []uint16
	// changed has the time of each entry's last change, as its index in times, which
	// ascends; nil if no entry is unstable. Rings have millions of entries, and few
	// changes.
	changed []uint16
	times   []time.Duration
	// resized is when the length last changed, if Previous has another one.
	resized time.Duration
}

// Adopt returns a ring that was found in the tables. When its entries changed
// is unknown: as far as anybody knows, just now.
func Adopt(entries, previous []uint16, now time.Duration) *Ring {
	r := &Ring{Entries: entries, Previous: previous, resized: now}
	if r.Unstable() == 0 {
		r.Previous = nil
		return r
	}
	r.changed, r.times = make([]uint16, len(entries)), []time.Duration{now}
	return r
}

// maxTimes is how many times of changes a ring has.
const maxTimes = 1 << 12

// at returns the time of an entry's last change.
func (r *Ring) at(entry int) time.Duration { return r.times[r.changed[entry]] }

// epoch returns the index of a time that is not before the others. If there are too many,
// the older half all get its latest time: their entries stay unstable a little
// longer. r.changed is not shared.
func (r *Ring) epoch(now time.Duration) uint16 {
	if n := len(r.times); n > 0 && r.times[n-1] == now {
		return uint16(n - 1)
	}
	if len(r.times) == maxTimes {
		const merged = maxTimes/2 - 1
		r.times = r.times[merged:]
		for i, at := range r.changed {
			r.changed[i] = max(at, merged) - merged
		}
	}
	r.times = append(slices.Clip(r.times), now)
	return uint16(len(r.times) - 1)
}

// Unstable counts the unstable entries.
func (r *Ring) Unstable() int {
	n := 0
	for _, e := range r.Entries {
		if e&Unstable != 0 {
			n++
		}
	}
	return n
}

// Place returns the index of the entry of a hash, given by its upper half; the
// program does the same (bpf/pick/ring.h).
func (r *Ring) Place(hash uint32) int { return int(uint64(hash) * uint64(len(r.Entries)) >> 32) }

// Next returns the ring with the given slots as entries. Entries whose slot
// differs from before become unstable, and all of them if the length does; no
// slots at all leave the entries without a backend, until they are settled. If
// nothing changes it is r itself.
func (r *Ring) Next(slots []uint16, now time.Duration) *Ring {
	slots = r.fill(slots)
	switch {
	case len(slots) == 0:
		return r
	case len(r.Entries) == 0:
		return &Ring{Entries: slots} // nothing came before
	}
	if len(slots) != len(r.Entries) {
		return r.resize(slots, now)
	}
	next := r.mark(slots, now)
	if next == r && slices.EqualFunc(r.Entries, slots, func(e, slot uint16) bool { return Slot(e) == slot }) {
		return r
	}
	out := *next
	out.Entries = slices.Clone(next.Entries)
	out.changed = slices.Clone(next.changed)
	at := out.epoch(now)
	for i, slot := range slots {
		if Slot(out.Entries[i]) != slot {
			out.Entries[i] = slot | Unstable
			out.changed[i] = at
		}
	}
	return &out
}

// Learn returns the ring as it is, with the entries that Next would change
// marked as unstable, so that their flows are recorded before they change.
func (r *Ring) Learn(slots []uint16, now time.Duration) *Ring {
	if slots = r.fill(slots); len(slots) == len(r.Entries) {
		return r.mark(slots, now)
	}
	return r.mark(slices.Repeat([]uint16{None}, len(r.Entries)), now)
}

// Learned returns the time at which all entries that Next would change have
// been unstable for that long. Entries that are stable now will never.
func (r *Ring) Learned(slots []uint16, long time.Duration) (at time.Duration, all bool) {
	slots = r.fill(slots)
	for i, e := range r.Entries {
		if len(slots) == len(r.Entries) && Slot(e) == slots[i] {
			continue
		}
		if e&Unstable == 0 {
			return 0, false
		}
		at = max(at, r.at(i)+long)
	}
	return at, true
}

// fill returns the slots as entries; without any slot all are None.
func (r *Ring) fill(slots []uint16) []uint16 {
	if len(slots) == 0 {
		return slices.Repeat([]uint16{None}, len(r.Entries))
	}
	return slots
}

// mark marks the entries whose slots differ, and keeps these slots. The marked
// entries that were stable have their present slots as previous ones.
func (r *Ring) mark(slots []uint16, now time.Duration) *Ring {
	out, at := r, uint16(0)
	for i, e := range r.Entries {
		if Slot(e) == slots[i] || e&Unstable != 0 {
			continue
		}
		if out == r {
			out = r.unsettled()
			at = out.epoch(now)
		}
		out.Entries[i] |= Unstable
		out.changed[i] = at
	}
	return out
}

// unsettled is a copy in which entries can be marked: it has a past.
func (r *Ring) unsettled() *Ring {
	c := &Ring{
		Entries: slices.Clone(r.Entries), Previous: r.Previous,
		changed: slices.Clone(r.changed), times: r.times, resized: r.resized,
	}
	if c.changed == nil {
		c.changed = make([]uint16, len(c.Entries))
	}
	if c.Previous == nil {
		c.Previous = c.slots()
	}
	return c
}

// resize makes all entries unstable. Flows are looked up by the length that the
// ring had before, in the slots that the entries had before the first of their
// changes, one by one.
func (r *Ring) resize(slots []uint16, now time.Duration) *Ring {
	next := &Ring{
		Entries:  make([]uint16, len(slots)),
		Previous: r.Previous,
		changed:  make([]uint16, len(slots)),
		times:    []time.Duration{now},
		resized:  now,
	}
	for i, slot := range slots {
		next.Entries[i] = slot | Unstable
	}
	if next.Previous == nil {
		next.Previous = r.slots()
	}
	return next
}

// slots returns the entries without their marks.
func (r *Ring) slots() []uint16 {
	slots := make([]uint16, len(r.Entries))
	for i, e := range r.Entries {
		slots[i] = Slot(e)
	}
	return slots
}

// due returns the earliest time at which Settle may make a difference, if there
// is one.
func (r *Ring) due(idle time.Duration) (at time.Duration, ok bool) {
	if len(r.Previous) != len(r.Entries) && r.Previous != nil {
		return r.resized + idle, true
	}
	for i, e := range r.Entries {
		if e&Unstable != 0 && (!ok || r.at(i)+idle < at) {
			at, ok = r.at(i)+idle, true
		}
	}
	return at, ok
}

// Settle returns the ring with those entries stable again whose last change is
// older than the idle time-out and that no recorded flow disagrees with; it is
// r itself if there are none. disagree has an element for each entry: whether a
// flow that is not idle is recorded with another slot. Entries without a backend
// stay unstable until all of them can go: the program takes it that a stable
// entry has one.
func (r *Ring) Settle(disagree []bool, idle, now time.Duration) *Ring {
	if at, ok := r.due(idle); !ok || now < at {
		return r
	}
	next := &Ring{Entries: slices.Clone(r.Entries), Previous: slices.Clone(r.Previous), changed: r.changed, times: r.times, resized: r.resized}
	if len(next.Previous) != len(next.Entries) {
		next.Previous = r.slots() // every flow that is older has been recorded, or is idle
	}
	left := 0
	for i, e := range r.Entries {
		switch {
		case e&Unstable == 0:
			continue
		case now < r.at(i)+idle:
			left++
			continue
		}
		next.Previous[i] = Slot(e)
		if disagree[i] {
			left++
		} else if Slot(e) != None {
			next.Entries[i] = Slot(e)
		}
	}
	switch {
	case left > 0 && slices.Equal(next.Entries, r.Entries) && slices.Equal(next.Previous, r.Previous):
		return r
	case left > 0:
		return next
	case Slot(next.Entries[0]) == None:
		return &Ring{}
	}
	return &Ring{Entries: next.Entries}
}

// Uses calls yield with every slot that a packet may be sent to by the ring,
// some more than once.
func (r *Ring) Uses(yield func(slot uint16)) {
	for _, e := range r.Entries {
		yield(Slot(e))
	}
	for _, slot := range r.Previous {
		yield(slot)
	}
}
