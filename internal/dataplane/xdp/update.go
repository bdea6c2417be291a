// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
)

// Update resolves the backends' next hops and makes a new version of the
// service visible; see dataplane.DataPlane.
func (p *Plane) Update(ctx context.Context, svc *lb.Service) (dataplane.Programmed, error) {
	if wrong := Limits().Check(svc); len(wrong) > 0 {
		return dataplane.Programmed{}, fmt.Errorf("vip %s: %w", svc.VIP, wrong[0])
	}
	pl, err := p.plan(svc)
	for err == nil {
		var programmed dataplane.Programmed
		if programmed, err = p.apply(ctx, pl); err == nil {
			return programmed, nil
		}
		if busy, ok := errors.AsType[table.BusyError](err); ok {
			err = p.tables.Grace.Wait(ctx, busy.Until)
		} else if gone, ok := errors.AsType[deviceGoneError](err); ok {
			err = pl.lose(gone.Device, p.config.Seed)
		} else if errors.Is(err, errProgramLacks) {
			err = p.loader.program(ctx, pl.features, func() bool { return !p.programs.Lacks(pl.features) }, func() error { return nil })
		} else if vips, ok := errors.AsType[vipError](err); ok {
			err = pl.refuse(vips, p.config.Seed)
		}
	}
	return dataplane.Programmed{}, fmt.Errorf("vip %s: %w", svc.VIP, err)
}

// errProgramLacks is returned by a change that needs a feature that the program in use
// lacks.
var errProgramLacks = errors.New("the program lacks what the service needs")

// apply writes the next version of the service, or returns table.BusyError,
// deviceGoneError, errProgramLacks or vipError.
func (p *Plane) apply(ctx context.Context, pl plan) (dataplane.Programmed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return dataplane.Programmed{}, err
	}
	if vips := p.addresses.among(&pl); len(vips) > 0 {
		return dataplane.Programmed{}, vipError{vips}
	}
	vip := pl.svc.VIP
	s, known := p.services[vip]
	if known && s.deleting { // the last Delete failed
		if err := p.delete(vip); err != nil {
			return dataplane.Programmed{}, err
		}
		known = false
	}
	if !known {
		s = &service{now: &version{ring: &tracking.Ring{}}, started: p.clock() + p.startTime}
	}
	if err := p.awaitReusable(s, known); err != nil {
		return dataplane.Programmed{}, err
	}
	if p.programs.Lacks(pl.features) {
		return dataplane.Programmed{}, errProgramLacks
	}
	if err := p.handOver(pl.devices); err != nil {
		return dataplane.Programmed{}, err
	}
	next, err := p.stage(s, pl)
	if err != nil {
		return dataplane.Programmed{}, err
	}
	if err := p.show(vip, s, next, known); err != nil {
		return dataplane.Programmed{}, err
	}
	p.programs.Recount(s.features, pl.features)
	s.note(pl)
	s.awaitLearned(p.clock(), func() { p.stale.Add(vip) })
	members, err := p.members.replace(s.members, membersOf(pl))
	s.members = members
	programmed := next.programmed(pl)
	next.numbers = nil
	return programmed, errors.Join(p.addresses.show(vip, s.addressFlags()), err)
}

// note records the service's user-space state.
func (s *service) note(pl plan) {
	s.features = pl.features
	s.idle = pl.svc.Idle() + idleSlack
	s.backends, s.known = pl.backends[:len(pl.ring)], true
	s.countLeft()
}

// awaitReusable returns table.BusyError while packets may still read the view, or
// the element of the VIP table, that a change would write.
func (p *Plane) awaitReusable(s *service, known bool) error {
	until := s.flipped
	if !known {
		until = p.deleted // a reader may hold the element that is reused
	}
	if !p.tables.Grace.Over(until) {
		return table.BusyError{Until: until}
	}
	return nil
}

// stage writes the next version of s to free places of the tables. On an error
// nothing is taken.
func (p *Plane) stage(s *service, pl plan) (*version, error) {
	counters := p.tables.CounterReader()
	// The grace period of all that has left is over (awaitReusable): before their slots get other
	// backends, the values of these counters are recorded.
	if err := s.retireTraffic(p.tables, p.tables.Grace.Newest(), counters.Read); err != nil {
		return nil, err
	}
	v := s.now.next()
	v.properties = pl.properties
	err := v.stageSlots(p.tables, pl, counters)
	if err == nil {
		err = p.stageRing(s, v, pl)
	}
	if err == nil {
		v.endDatagrams(pl.svc)
		err = v.stageTables(p.tables, s)
	}
	if err == nil {
		err = v.properties.stage(p.tables, v.slots, &s.now.properties)
	}
	if err != nil {
		v.unstage(p.tables, s)
		return nil, err
	}
	v.flags = v.properties.flags()
	if !slices.ContainsFunc(pl.ring, func(b maglev.Backend) bool { return b.Weight > 0 }) {
		v.flags |= table.BalancerViewFlagVIEW_EMPTY
	}
	return v, nil
}

// unstage frees elements that only the version uses; no packet has seen it.
func (v *version) unstage(t *table.Tables, s *service) {
	now := s.now.memory(t)
	for i, m := range v.memory(t) {
		if m != now[i] {
			m.Release(m.extent)
		}
	}
	_ = v.properties.retire(t, s.number.Base, &s.now.properties, 0) // fails only without a successor
	if v.counters != s.now.counters {
		t.Counters.Release(v.counters)
	}
}

// stageTables writes the differences from the present version.
func (v *version) stageTables(t *table.Tables, s *service) (err error) {
	for len(v.slots) > 0 && !v.slots[len(v.slots)-1].taken() {
		v.slots = v.slots[:len(v.slots)-1]
	}
	if v.ring != s.now.ring || table.Few(len(v.slots)) != table.Few(len(s.now.slots)) {
		if v.entries, err = stageEntries(t, v.ring.Entries, len(v.slots)); err != nil {
			v.entries = s.now.entries
			return err
		}
		if v.previous, err = stageEntries(t, v.ring.Previous, len(v.slots)); err != nil {
			v.previous = s.now.previous
			return err
		}
	}
	if sameSlots(v.slots, s.now.slots) {
		return nil
	}
	if v.table, err = t.BackendEntries.Alloc(uint32(len(v.slots))); err != nil {
		v.table = s.now.table
		return err
	}
	for i := range v.slots {
		if err := t.WriteBackend(v.table.Base+uint32(i), v.slots[i].Backend, v.slots[i].detail); err != nil {
			return err
		}
	}
	return nil
}

func stageEntries(t *table.Tables, entries []uint16, slots int) (table.Extent, error) {
	e, err := t.RingChunks.Alloc(table.Chunks(uint32(len(entries)), slots))
	if err != nil {
		return table.Extent{}, err
	}
	if err := t.WriteRing(e.Base, entries, slots); err != nil {
		t.RingChunks.Release(e)
		return table.Extent{}, err
	}
	return e, nil
}

// show makes packets see a staged version, if it differs for them from the present
// one.
func (p *Plane) show(vip lb.VIP, s *service, next *version, known bool) error {
	if known && next.same(s.now) {
		next.unstage(p.tables, s)
		s.now = next
		return nil
	}
	err := p.publish(vip, s, next, known)
	if err != nil {
		next.unstage(p.tables, s)
	}
	return err
}

// publish makes a staged version visible and retires the one that it replaces.
func (p *Plane) publish(vip lb.VIP, s *service, next *version, known bool) error {
	number, view := s.number, 1-s.active
	if !known {
		var err error
		if number, err = newNumber(p.tables, vip); err != nil {
			return err
		}
	}
	err := p.tables.WriteView(number.Base, view, next.view())
	if err == nil {
		err = next.properties.write(p.tables, number.Base, view, &s.now.properties)
	}
	if err == nil {
		err = p.tables.Flip(number.Base, view)
	}
	if err == nil && !known {
		err = p.tables.VIPs.Put(table.VIPKey(vip), number.Base)
	}
	if err != nil {
		err = errors.Join(err, s.now.properties.write(p.tables, number.Base, view, &next.properties))
		if !known {
			p.tables.Numbers.Release(number)
		}
		return err
	}
	if !known {
		p.services[vip] = s
	}
	s.number, s.active = number, view
	p.paths.repoint(vip, next)
	p.replace(s, next)
	return nil
}

// newNumber takes a number for a service; arrays indexed by number begin at zero.
func newNumber(t *table.Tables, vip lb.VIP) (table.Extent, error) {
	number, err := t.Numbers.Alloc(1)
	if err != nil {
		return table.Extent{}, err
	}
	if err = t.BeginService(number.Base, table.VIPKey(vip)); err != nil {
		t.Numbers.Release(number)
	}
	return number, err
}

// replace records a visible version and retires elements that only the one before
// used.
func (p *Plane) replace(s *service, next *version) {
	now := p.tables.Grace.Now()
	old := s.now
	before := old.memory(p.tables)
	for i, m := range next.memory(p.tables) {
		if m != before[i] {
			before[i].Retire(before[i].extent, now)
		}
	}
	_ = old.properties.retire(p.tables, s.number.Base, &next.properties, now) // fails only without a successor
	s.leave(p.tables, old, next, now)
	next.moved = nil
	s.now, s.flipped = next, now
	if next.remembers() {
		p.sweeper.clientsLeft.Store(true)
	}
}

// view is the version as the program reads it.
func (v *version) view() table.BalancerView {
	return table.BalancerView{
		RingBase:     v.entries.Base,
		RingSize:     uint32(len(v.ring.Entries)),
		PreviousBase: v.previous.Base,
		PreviousSize: uint32(len(v.ring.Previous)),
		BackendBase:  v.table.Base,
		StatsBase:    v.counters.Base,
		Slots:        uint16(len(v.slots)),
		Flags:        uint16(v.flags),
	}
}

// same reports whether two versions are the same for packets.
func (v *version) same(o *version) bool {
	return v.ring == o.ring && v.table == o.table && v.flags == o.flags && v.properties.same(&o.properties)
}

// next begins the version after v, equal to it.
func (v *version) next() *version {
	n := *v
	n.slots = slices.Clone(v.slots)
	n.numbers, n.moved, n.learned = nil, nil, 0
	return &n
}
