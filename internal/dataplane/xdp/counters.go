// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// leaver is a counter of a backend that left, or got another counter, while packets that it
// counts may be on their way.
type leaver struct {
	// backend is its number in records. before is the counter's value from other backends, or
	// from before its count was added to another counter.
	backend uint32
	before  dataplane.Traffic
	counter table.Extent // of size 1
	// moved is set if the counter isn't one of the service's any more.
	moved bool
	after table.Ticket
}

// before is the value of the slot's counter when the backend got it, less the backend's
// traffic on another counter.
func (s *slot) before() dataplane.Traffic {
	return dataplane.Traffic{Packets: s.detail.Before.Packets, Bytes: s.detail.Before.Bytes, NewFlows: s.newFlowsBefore}
}

// begin sets the value that before returns.
func (s *slot) begin(before dataplane.Traffic) {
	s.detail.Before = table.BalancerTraffic{Packets: before.Packets, Bytes: before.Bytes}
	s.newFlowsBefore = before.NewFlows
}

// stageCounters records the values of the counters of the slots begun, which are exact: these
// counters count nothing at present. If there are more slots than counters in the row, all
// slots get others, which begin with the present values of the former ones.
func (v *version) stageCounters(t *table.Tables, counters *table.CounterReader, begun []uint16) (err error) {
	counted := make([]dataplane.Traffic, len(v.slots))
	if len(v.slots) > int(v.counters.Size) {
		v.moved = make([]dataplane.Traffic, v.counters.Size)
		fresh := make([]bool, len(v.slots))
		for _, n := range begun {
			fresh[n] = true
		}
		for n := range v.moved {
			if !v.slots[n].taken() || fresh[n] {
				continue
			}
			if v.moved[n], err = counters.Read(v.counters.Base + uint32(n)); err != nil {
				return err
			}
			counted[n] = v.moved[n].Sub(v.slots[n].before())
			begun = append(begun, uint16(n))
		}
		row, err := table.AllocCounters(t, len(v.slots))
		if err != nil {
			return err
		}
		v.counters = row
	}
	slices.Sort(begun)
	for _, n := range begun {
		index := v.counters.Base + uint32(n)
		before, err := counters.Read(index)
		if err != nil {
			return err
		}
		v.slots[n].begin(before.Sub(counted[n]))
		if err := table.WriteNewFlowsBefore(t, index, v.slots[n].newFlowsBefore); err != nil {
			return err
		}
	}
	return nil
}

// leave notes the counters of backends that have left, or moved, with a version.
func (s *service) leave(t *table.Tables, old, next *version, now table.Ticket) {
	moved := next.moved != nil
	for i := range old.counters.Size {
		counter := table.Extent{Base: old.counters.Base + i, Size: 1}
		one := slotAt(old.slots, i)
		if one == nil {
			if moved {
				t.Counters.Retire(counter, now)
			}
			continue
		}
		l := leaver{backend: one.record(uint16(i)), before: one.before(), counter: counter, moved: moved, after: now}
		stays := named(next.slots, l.backend) != nil
		if stays && moved {
			l.before = next.moved[i]
		}
		if !stays || moved {
			s.leaving = append(s.leaving, l)
		}
	}
}

// hasLeavers reports whether a service has backends that left before that ticket.
func hasLeavers(services map[lb.VIP]*service, quiet table.Ticket) bool {
	for _, s := range services {
		if slices.ContainsFunc(s.leaving, func(l leaver) bool { return l.after <= quiet }) {
			return true
		}
	}
	return false
}

// retireTraffic is service.retireTraffic of all services.
func retireTraffic(t *table.Tables, services map[lb.VIP]*service, quiet table.Ticket, traffic []dataplane.Traffic) error {
	read := func(counter uint32) (dataplane.Traffic, error) { return traffic[counter], nil }
	for vip, s := range services {
		if err := s.retireTraffic(t, quiet, read); err != nil {
			return fmt.Errorf("vip %s: %w", vip, err)
		}
	}
	return nil
}

// retireTraffic ends counters of backends that left, or moved, and that no packet on its way is
// counted by any more. Their traffic is added to the backend's present counter, or to the
// service's total of former backends.
func (s *service) retireTraffic(t *table.Tables, quiet table.Ticket, read func(counter uint32) (dataplane.Traffic, error)) error {
	var waiting, over []leaver
	var sums []dataplane.Traffic
	for _, l := range s.leaving {
		if l.after > quiet {
			waiting = append(waiting, l)
			continue
		}
		sum, err := read(l.counter.Base)
		if err != nil {
			return err
		}
		over, sums = append(over, l), append(sums, sum.Sub(l.before))
	}
	if len(over) == 0 {
		return nil
	}
	var errs []error
	now := s.now
	for i, l := range over {
		if named(now.slots, l.backend) == nil {
			s.gone = s.gone.Add(sums[i])
		} else {
			if now == s.now { // others read it
				now = s.now.next()
				now.learned = s.now.learned
			}
			number := l.backend & 0xffff
			one := &now.slots[number]
			one.begin(one.before().Sub(sums[i]))
			errs = append(errs,
				table.WriteBefore(t, now.table.Base+number, one.detail.Before),
				table.WriteNewFlowsBefore(t, now.counters.Base+number, one.newFlowsBefore))
		}
		if l.moved {
			t.Counters.Release(l.counter)
		}
	}
	s.now, s.leaving = now, waiting
	return errors.Join(append(errs,
		table.WriteServiceDetail(t, s.number.Base, unsafe.Offsetof(table.BalancerServiceDetail{}.Gone), table.BalancerTraffic{Packets: s.gone.Packets, Bytes: s.gone.Bytes}),
		table.WriteServiceDetail(t, s.number.Base, unsafe.Offsetof(table.BalancerServiceDetail{}.GoneFlows), s.gone.NewFlows),
	)...)
}
