// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
)

// slot is a place for a backend of one service. Ring entries and flow records
// name backends by their slots, so a backend keeps its own as long as either
// may name it: also when it has left the service. The zero slot is free.
type slot struct {
	table.Backend
	detail table.BalancerBackendDetail
	// backend as the service had it last; nil if only an earlier agent knew it.
	backend *lb.Backend
	// hopErr is why the backend has no next hop; nil if it has.
	hopErr error
	// left is set if the backend isn't one of the service's any more, and wasUsable once it has
	// been usable.
	left, wasUsable bool
	// device is set if packets for the backend were handed over to a device, and gone once a
	// backend that has left doesn't exist any more.
	device, gone bool
	// newFlowsBefore is the value of the slot's counter of new flows when the backend got
	// it.
	newFlowsBefore uint64
}

func (s *slot) taken() bool { return s.detail.Port != 0 }

// adopted reports whether only an earlier agent knew the backend.
func (s *slot) adopted() bool { return s.backend == nil }

func (s *slot) usable() bool { return s.has(table.BalancerBackendFlagBACKEND_USABLE) }

// server returns the slot's backend, as far as it is known. Of those that only an earlier agent knew
// these are the ones behind a device of their own, as this node's pods are.
func (s *slot) server() (b lb.Backend, known bool) {
	switch {
	case s.backend != nil:
		return *s.backend, s.taken()
	case s.has(table.BalancerBackendFlagBACKEND_HANDOVER):
		id := s.id()
		return lb.Backend{Address: id.Addr(), Port: id.Port(), Outside: !s.has(table.BalancerBackendFlagBACKEND_KEEP_SOURCE)}, s.taken()
	}
	return b, false
}

func (s *slot) has(flag table.BalancerBackendFlag) bool { return s.Flags&uint8(flag) != 0 }

func (s *slot) id() lb.BackendID {
	return netip.AddrPortFrom(table.Unmapped(s.detail.Address), table.WirePort(s.detail.Port))
}

// record is the slot's backend in flow records.
func (s *slot) record(number uint16) uint32 { return uint32(number) | uint32(s.Generation)<<16 }

// slotAt returns the slot of that number, or nil if no backend has it.
func slotAt(slots []slot, number uint32) *slot {
	if int(number) < len(slots) && slots[number].taken() {
		return &slots[number]
	}
	return nil
}

// named returns the slot whose backend a record names, or nil.
func named(slots []slot, record uint32) *slot {
	if one := slotAt(slots, record&0xffff); one != nil && one.record(uint16(record)) == record {
		return one
	}
	return nil
}

// sameSlots reports whether slots are the same for the program.
func sameSlots(a, b []slot) bool {
	return slices.EqualFunc(a, b, func(x, y slot) bool { return x.Backend == y.Backend && x.detail == y.detail })
}

// slotNumbers maps the backends of a service to their slots.
func slotNumbers(slots []slot) map[lb.BackendID]uint16 {
	numbers := make(map[lb.BackendID]uint16, len(slots))
	for i := range slots {
		if slots[i].taken() {
			numbers[slots[i].id()] = uint16(i)
		}
	}
	return numbers
}

// number returns the slot of a backend.
func (v *version) number(id lb.BackendID) (n uint16, found bool) {
	if v.numbers == nil {
		v.numbers = slotNumbers(v.slots)
	}
	n, found = v.numbers[id]
	return n, found
}

// place is where a backend is in the backend table, plus 1; 0 if it isn't.
func (v *version) place(id lb.BackendID) uint32 {
	n, found := v.number(id)
	if !found {
		return 0
	}
	return v.table.Base + uint32(n) + 1
}

// after returns the slot with the lasting fields of the slot that its backend has
// now.
func (s slot) after(now *slot) slot {
	s.Generation, s.detail.Before, s.newFlowsBefore = now.Generation, now.detail.Before, now.newFlowsBefore
	s.wasUsable = now.wasUsable || s.usable()
	s.device = s.has(table.BalancerBackendFlagBACKEND_HANDOVER) || now.device && !s.usable()
	s.gone = now.gone
	if s.adopted() {
		s.backend = now.backend
	}
	return s
}

// allocSlot gives a backend the first free slot from one on, and returns its number.
func allocSlot(t *table.Tables, v *version, from uint16) (uint16, error) {
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
	v.slots[number].Generation = t.NextGeneration()
	return uint16(number), nil
}

// stageSlots gives each backend of the plan its slot's new content. One that left and
// whose slot has been freed since is left out.
func (v *version) stageSlots(t *table.Tables, pl plan, counters *table.CounterReader) error {
	v.numbers = slotNumbers(v.slots)
	v.slots = slices.Grow(v.slots, max(0, len(pl.backends)-len(v.slots)))
	free, begun := uint16(0), []uint16{}
	for i, b := range pl.backends {
		n, known := v.numbers[b.ID()]
		if !known && i >= len(pl.ring) {
			continue
		}
		if !known {
			var err error
			if n, err = allocSlot(t, v, free); err != nil {
				return err
			}
			v.numbers[b.ID()], free = n, n+1
			begun = append(begun, n)
		}
		v.slots[n] = pl.slots[i].after(&v.slots[n])
	}
	for i := range v.slots { // one may not be in the plan, if only an earlier agent knew it
		one := &v.slots[i]
		one.left = one.taken() && !pl.present(one.id())
		if one.left {
			one.Flags &^= uint8(table.BalancerBackendFlagBACKEND_NEW_FLOWS)
		}
		one.end(t, pl.gone)
	}
	disableDeadNodes(v.slots)
	disableFormerNodes(v.slots, pl.svc)
	return v.stageCounters(t, counters, begun)
}

// end makes a backend that doesn't exist any more unusable. Its sessions and records name another
// generation from then on, so the next pod with its address gets none of their packets.
func (s *slot) end(t *table.Tables, lost map[lb.BackendID]bool) {
	switch {
	case !s.left:
		s.gone = false
	case s.gone:
	case lost[s.id()] || !s.adopted() && s.backend.Ending:
		s.gone, s.Generation = true, t.NextGeneration()
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
