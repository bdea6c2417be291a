// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// slot is a place for a backend of one service. Ring entries and flow records
// name backends by their slots, so a backend keeps its own as long as either
// may name it: also when it has left the service. The zero slot is free.
type slot struct {
	table.Slot
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
}

func (s *slot) taken() bool { return s.Detail.Port != 0 }

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
	return netip.AddrPortFrom(table.Unmapped(s.Detail.Address), table.WirePort(s.Detail.Port))
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
	return slices.EqualFunc(a, b, func(x, y slot) bool { return x.Backend == y.Backend && x.Detail == y.Detail })
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

// place is where a backend is in the backend table, plus 1, if the version's begin at base; 0 if it
// isn't.
func (v *version) place(id lb.BackendID, base uint32) uint32 {
	n, found := v.number(id)
	if !found {
		return 0
	}
	return base + uint32(n) + 1
}

// after returns the slot with the lasting fields of the slot that its backend has
// now.
func (s slot) after(now *slot) slot {
	s.Generation, s.Detail.Before, s.NewFlowsBefore = now.Generation, now.Detail.Before, now.NewFlowsBefore
	s.wasUsable = now.wasUsable || s.usable()
	s.device = s.has(table.BalancerBackendFlagBACKEND_HANDOVER) || now.device && !s.usable()
	s.gone = now.gone
	if s.adopted() {
		s.backend = now.backend
	}
	return s
}
