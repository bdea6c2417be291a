// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// slot is a place for a backend of one service. Ring entries and flow records
// name backends by their slots, so a backend keeps its own as long as either
// may name it: also when it has left the service. The zero slot is free.
type slot struct {
	balancerBackend
	detail balancerBackendDetail
	// backend is what the service said of it last; without an address if only an
	// earlier agent knew.
	backend lb.Backend
	// unreached is why the backend has no next hop; nil if it has.
	unreached error
	// wasUsable says that the backend has been usable.
	wasUsable bool
	// newFlowsBefore is what the counter of new flows had counted when the backend
	// got it.
	newFlowsBefore uint64
}

func (s *slot) taken() bool { return s.detail.Port != 0 }

// adopted reports whether only an earlier agent knew what the backend is.
func (s *slot) adopted() bool { return !s.backend.Address.IsValid() }

func (s *slot) usable() bool { return s.has(balancerBackendFlagBACKEND_USABLE) }

func (s *slot) has(flag balancerBackendFlag) bool { return s.Flags&uint8(flag) != 0 }

func (s *slot) id() lb.BackendID {
	return netip.AddrPortFrom(unmapped(s.detail.Address), wirePort(s.detail.Port))
}

// record is what a flow record says of the slot's backend.
func (s *slot) record(number uint16) uint32 { return uint32(number) | uint32(s.Generation)<<16 }

// traffic is where the slot's traffic is counted.
func (s *slot) traffic() extent { return extent{s.Stats, 1} }

// since is the traffic of the slot's backend, out of all counters' readings.
func (s *slot) since(traffic []dataplane.Traffic) dataplane.Traffic {
	return dataplane.Traffic{
		Packets: traffic[s.Stats].Packets - s.detail.Before.Packets,
		Bytes:   traffic[s.Stats].Bytes - s.detail.Before.Bytes,

		NewFlows: traffic[s.Stats].NewFlows - s.newFlowsBefore,
	}
}

// same reports whether the program can't tell two slots apart.
func (s *slot) same(o *slot) bool {
	return s.balancerBackend == o.balancerBackend && s.detail == o.detail
}

func sameSlots(a, b []slot) bool {
	return slices.EqualFunc(a, b, func(x, y slot) bool { return x.same(&y) })
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

// seat gives a backend a free slot, with a traffic counter of its own, and
// returns the slot's number. What the counter has counted for others is known
// exactly: they were retired before a grace period.
func (p *Plane) seat(v *version) (uint16, error) {
	number := slices.IndexFunc(v.slots, func(s slot) bool { return !s.taken() })
	if number < 0 {
		number = len(v.slots)
		v.slots = append(v.slots, slot{})
	}
	if number >= maxServiceBackends {
		return 0, fmt.Errorf("%d backends, with those that left not long ago, are too many: want at most %d", number+1, maxServiceBackends)
	}
	traffic, err := p.take(p.traffic, 1)
	if err != nil {
		return 0, err
	}
	v.fresh = append(v.fresh, traffic)
	p.generation++
	v.slots[number].Generation = p.generation
	v.slots[number].Stats = traffic.base
	if v.slots[number].detail.Before, err = p.kernel.counted(traffic.base); err != nil {
		return 0, err
	}
	v.slots[number].newFlowsBefore, err = p.kernel.beginNewFlows(traffic.base)
	return uint16(number), err
}
