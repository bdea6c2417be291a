// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
)

// moment is the part of the plane's state that a service's next version depends on.
type moment struct {
	now time.Duration
	// fresh is set if no packet depends on the ring of the version before.
	fresh bool
	// generation is the one that was given to a slot last.
	generation uint16
}

// errNoRing is returned by next if the plan relies on the ring of a version that isn't the one before
// any more.
var errNoRing = errors.New("the plan has no ring")

// next returns the version that a plan makes of the one before, and how the tables differ for it.
// It is pure.
func next(old *version, pl *plan, at moment) (*version, table.Writes, error) {
	v := old.clone()
	begun, err := v.seat(pl, &at.generation)
	if err == nil {
		err = v.step(old, pl, at)
	}
	if err != nil {
		return nil, table.Writes{}, err
	}
	v.endDatagrams(pl.svc)
	v.options, v.flags = pl.properties.options(v.slots, &old.options), pl.properties.flags()
	if !slices.ContainsFunc(pl.ring, func(b maglev.Backend) bool { return b.Weight > 0 }) {
		v.flags |= table.BalancerViewFlagVIEW_EMPTY
	}
	w := v.writes(pl.svc.VIP, old, at.generation)
	w.Begun = begun
	return v, w, nil
}

// writes drops free slots at the end and returns how the tables differ from the version before.
func (v *version) writes(vip lb.VIP, old *version, generation uint16) table.Writes {
	for len(v.slots) > 0 && !v.slots[len(v.slots)-1].taken() {
		v.slots = v.slots[:len(v.slots)-1]
	}
	w := table.Writes{
		VIP:        table.VIPKey(vip),
		Rings:      v.ring != old.ring || table.Few(len(v.slots)) != table.Few(len(old.slots)),
		Ring:       v.ring.Entries,
		Previous:   v.ring.Previous,
		Generation: generation,
		Options:    v.options,
		View: table.BalancerView{
			RingSize: uint32(len(v.ring.Entries)), PreviousSize: uint32(len(v.ring.Previous)),
			Slots: uint16(len(v.slots)), Flags: uint16(v.flags),
		},
	}
	if !sameSlots(v.slots, old.slots) {
		w.Slots = make([]*table.Slot, len(v.slots))
		for i := range v.slots {
			w.Slots[i] = &v.slots[i].Slot
		}
	}
	return w
}

// seat gives each backend of the plan its slot's new content, and returns the slots of new ones.
// One that left and whose slot has been freed since is left out.
func (v *version) seat(pl *plan, generation *uint16) (begun []uint16, err error) {
	v.numbers = slotNumbers(v.slots)
	v.slots = slices.Grow(v.slots, max(0, len(pl.backends)-len(v.slots)))
	present := make([]bool, len(v.slots)+len(pl.backends)) // by slot
	free := uint16(0)
	for i, b := range pl.backends {
		n, known := v.numbers[b.ID()]
		if !known && i >= len(pl.ring) {
			continue
		}
		if !known {
			if n, err = v.freeSlot(free); err != nil {
				return nil, err
			}
			*generation++
			v.slots[n].Generation = *generation
			v.numbers[b.ID()], free = n, n+1
			begun = append(begun, n)
		}
		v.slots[n] = pl.slots[i].after(&v.slots[n])
		present[n] = i < len(pl.ring)
	}
	for i := range v.slots { // one may not be in the plan, if only an earlier agent knew it
		one := &v.slots[i]
		one.left = one.taken() && !present[i]
		if one.left {
			one.Flags &^= uint8(table.BalancerBackendFlagBACKEND_NEW_FLOWS)
		}
		one.end(pl.gone, generation)
	}
	disableDeadNodes(v.slots)
	disableFormerNodes(v.slots, pl.svc)
	return begun, nil
}

// freeSlot returns the number of the first free slot from one on, which may be a new one.
func (v *version) freeSlot(from uint16) (uint16, error) {
	number := int(from)
	for number < len(v.slots) && v.slots[number].taken() {
		number++
	}
	if number >= maxServiceBackends {
		return 0, fmt.Errorf("%d backends, with those that left not long ago, are too many: want at most %d", number+1, maxServiceBackends)
	}
	if number == len(v.slots) {
		v.slots = append(v.slots, slot{})
	}
	return uint16(number), nil
}

// end makes a backend that doesn't exist any more unusable. Its sessions and records name another
// generation from then on, so the next pod with its address gets none of their packets.
func (s *slot) end(lost map[lb.BackendID]bool, generation *uint16) {
	switch {
	case !s.left:
		s.gone = false
	case s.gone:
	case lost[s.id()] || !s.adopted() && s.backend.Ending:
		*generation++
		s.gone, s.Generation = true, *generation
	}
	if s.gone {
		s.Flags &^= uint8(table.BalancerBackendFlagBACKEND_USABLE)
	}
}

// endDatagrams makes backends that have left a UDP service unusable once the ring doesn't
// name them, if they don't exist any more.
func (v *version) endDatagrams(svc *lb.Service) {
	if svc.Protocol != lb.UDP || !svc.Ephemeral {
		return
	}
	named := make(map[uint16]bool, len(v.slots))
	for _, e := range v.ring.Entries {
		named[tracking.Slot(e)] = true
	}
	for i := range v.slots {
		if one := &v.slots[i]; one.left && !named[uint16(i)] {
			one.Flags &^= uint8(table.BalancerBackendFlagBACKEND_USABLE)
		}
	}
}

// step takes the step to the ring that is desired now, or prepares it.
func (v *version) step(old *version, pl *plan, at moment) error {
	if !v.builtFrom(pl.ring, pl.size) {
		if !pl.built { // the version that has this ring was deleted after the plan was made, or before
			return errNoRing
		}
		v.built, v.size, v.desired = pl.ring, pl.size, make([]uint16, len(pl.indexes))
		for i, index := range pl.indexes {
			v.desired[i] = v.numbers[pl.ring[index].ID]
		}
	}
	v.learned, v.learning = 0, 0
	if at.fresh {
		if !slices.Equal(v.ring.Entries, v.desired) {
			v.ring = (&tracking.Ring{}).Next(v.desired, at.now)
		}
		return nil
	}
	if wait, learned := v.learns(old, pl.svc, at.now); wait {
		v.ring, v.learned = v.ring.Learn(v.desired, at.now), learned
		if v.learning = old.learning; v.learning == 0 {
			v.learning = at.now
		}
		return nil
	}
	v.ring = v.ring.Next(v.desired, at.now)
	return nil
}

// builtFrom reports whether Build would make the version's ring of these.
func (v *version) builtFrom(ring []maglev.Backend, size int) bool {
	return v.built != nil && v.size == size && slices.Equal(v.built, ring)
}

// learns reports whether the step to the ring that v desires has to wait, and
// until when: UDP has no first packet that marks new flows, so flows that the step
// would move are recorded first. A step because of a dead server or a lost next hop
// doesn't wait, nor does the first one after there was no backend, nor one that
// further changes have delayed for twice the time.
func (v *version) learns(old *version, svc *lb.Service, now time.Duration) (wait bool, learned time.Duration) {
	if svc.Protocol != lb.UDP || svc.Forward == lb.NAT || svc.Learn == 0 || !v.serves(old) || v.lost(old) {
		return false, 0
	}
	learned, all := v.ring.Learned(v.desired, svc.Learn)
	if !all {
		learned = now + svc.Learn
	}
	if old.learning != 0 {
		learned = min(learned, old.learning+2*svc.Learn)
	}
	return now < learned, learned
}

// serves reports whether a backend on the ring could be used until now, so that
// there may be flows to learn.
func (v *version) serves(old *version) bool {
	return slices.ContainsFunc(v.ring.Entries, func(e uint16) bool {
		n := tracking.Slot(e)
		return int(n) < len(old.slots) && old.slots[n].usable()
	})
}

// lost reports whether a backend on the ring can't be used any more.
func (v *version) lost(old *version) bool {
	return slices.ContainsFunc(v.ring.Entries, func(e uint16) bool {
		n := tracking.Slot(e)
		return int(n) < len(old.slots) && old.slots[n].usable() && !v.slots[n].usable()
	})
}
