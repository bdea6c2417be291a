// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
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
		if programmed, err = p.apply(ctx, &pl); err == nil {
			return programmed, nil
		}
		if busy, ok := errors.AsType[table.BusyError](err); ok {
			err = p.tables.Grace.Wait(ctx, busy.Until)
		} else if gone, ok := errors.AsType[deviceGoneError](err); ok {
			err = pl.lose(gone.Device, p.config.Seed)
		} else if errors.Is(err, errProgramLacks) {
			err = p.loader.program(ctx, pl.features, func() bool { return !p.programs.Lacks(pl.features) }, func() error { return nil })
		} else if errors.Is(err, errNoRing) {
			err = pl.build(p.config.Seed, nil)
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
// deviceGoneError, errProgramLacks, errNoRing or vipError.
func (p *Plane) apply(ctx context.Context, pl *plan) (dataplane.Programmed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.admit(ctx, pl)
	if err != nil {
		return dataplane.Programmed{}, err
	}
	at, err := p.moment(s)
	if err != nil {
		return dataplane.Programmed{}, err
	}
	v, writes, err := next(s.now, pl, at)
	if err == nil {
		err = p.show(pl.svc.VIP, s, v, writes)
	}
	if err != nil {
		return dataplane.Programmed{}, err
	}
	return v.programmed(pl), p.note(s, pl)
}

// admit returns the service that a plan changes, once nothing hinders the change.
func (p *Plane) admit(ctx context.Context, pl *plan) (*service, error) {
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	if vips := p.addresses.among(pl); len(vips) > 0 {
		return nil, vipError{vips}
	}
	s := p.services[pl.svc.VIP]
	if s != nil && s.deleting { // the last Delete failed
		if err := p.delete(pl.svc.VIP); err != nil {
			return nil, err
		}
		s = nil
	}
	until := p.deleted // a reader may hold the element of the VIP table that is reused
	if s != nil {
		until = s.Flipped // or read the view
	}
	switch {
	case !p.tables.Grace.Over(until):
		return nil, table.BusyError{Until: until}
	case p.programs.Lacks(pl.features):
		return nil, errProgramLacks
	case s == nil:
		s = &service{now: &version{ring: &tracking.Ring{}}, started: p.clock() + p.startTime}
	}
	return s, handOver(p.handover, pl.devices)
}

// moment returns the state on which the next version of a service depends. The grace period of
// all that has left is over: before their slots get other backends, the values of their counters
// are recorded.
func (p *Plane) moment(s *service) (moment, error) {
	if err := s.retireTraffic(p.tables, p.tables.Grace.Newest(), p.tables.CounterReader().Read); err != nil {
		return moment{}, err
	}
	at := moment{now: p.clock(), generation: p.tables.Generation()}
	noPast, err := s.hasNoPast(p.tables, at.now)
	at.fresh = noPast || p.unread
	return at, err
}

// note records state of a service that isn't in its own elements of the tables.
func (p *Plane) note(s *service, pl *plan) error {
	p.programs.Recount(s.features, pl.features)
	s.features = pl.features
	s.idle = pl.svc.Idle() + idleSlack
	s.backends, s.known = pl.backends[:len(pl.ring)], true
	s.countLeft()
	if v := s.now; v.learned != 0 {
		time.AfterFunc(v.learned-p.clock()+time.Millisecond, func() { p.stale.Add(pl.svc.VIP) })
	}
	members, err := p.members.replace(s.members, membersOf(pl))
	s.members = members
	return errors.Join(p.addresses.show(pl.svc.VIP, s.addressFlags()), err)
}
