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

// leave notes the counters of backends that have left, or moved, with a version.
func (s *service) leave(t *table.Tables, next *version, done table.Committed) {
	moved, row := done.Moved != nil, done.Before.Counters
	for i := range row.Size {
		counter := table.Extent{Base: row.Base + i, Size: 1}
		one := slotAt(s.now.slots, i)
		if one == nil {
			if moved {
				t.Counters.Retire(counter, s.Flipped)
			}
			continue
		}
		l := leaver{backend: one.record(uint16(i)), before: one.Before(), counter: counter, moved: moved, after: s.Flipped}
		stays := named(next.slots, l.backend) != nil
		if stays && moved {
			l.before = done.Moved[i]
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
				now = s.now.clone()
			}
			number := l.backend & 0xffff
			one := &now.slots[number]
			one.Begin(one.Before().Sub(sums[i]))
			errs = append(errs,
				table.WriteBefore(t, s.Backends.Base+number, one.Detail.Before),
				table.WriteNewFlowsBefore(t, s.Counters.Base+number, one.NewFlowsBefore))
		}
		if l.moved {
			t.Counters.Release(l.counter)
		}
	}
	s.now, s.leaving = now, waiting
	return errors.Join(append(errs,
		table.WriteServiceDetail(t, s.Number.Base, unsafe.Offsetof(table.BalancerServiceDetail{}.Gone), table.BalancerTraffic{Packets: s.gone.Packets, Bytes: s.gone.Bytes}),
		table.WriteServiceDetail(t, s.Number.Base, unsafe.Offsetof(table.BalancerServiceDetail{}.GoneFlows), s.gone.NewFlows),
	)...)
}
