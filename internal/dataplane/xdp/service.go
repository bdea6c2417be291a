// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
)

// service is what the tables hold of one service.
type service struct {
	number  extent // of size 1
	active  uint32 // the view in use
	flipped ticket // when it came into use; the other view may be written when it is over
	ring    extent
	size    uint32 // entries of the ring
	flags   uint16
	entries []slot // in the order of the ring's indexes
	table   extent // where they lie
	traffic map[lb.BackendID]extent
	leaving []leaver
	gone    dataplane.Traffic
	built   []maglev.Backend // what the ring was built from; nil if adopted
	shares  []int            // ring entries of each backend of built
}

// leaver is a backend that left while packets to it may be on their way.
type leaver struct {
	traffic extent
	after   ticket
}

// errBusy is returned by a change that has to wait for a grace period.
type errBusy struct{ until ticket }

func (errBusy) Error() string { return "waiting for packets to leave the tables" }

// Update resolves the backends' next hops and makes a new version of the
// service visible; see dataplane.DataPlane.
func (p *Plane) Update(ctx context.Context, svc *lb.Service) (dataplane.Programmed, error) {
	if wrong := Limits().Check(svc); len(wrong) > 0 {
		return dataplane.Programmed{}, fmt.Errorf("vip %s: %w", svc.VIP, wrong[0])
	}
	plan := p.plan(svc)
	for {
		programmed, err := p.apply(ctx, plan)
		if busy, ok := errors.AsType[errBusy](err); ok {
			if err = p.grace.wait(ctx, busy.until); err == nil {
				continue
			}
		}
		if err != nil {
			return dataplane.Programmed{}, fmt.Errorf("vip %s: %w", svc.VIP, err)
		}
		return programmed, nil
	}
}

// plan is a service with its backends in the order of their names, which all
// nodes share, and how each is reached.
type plan struct {
	svc      *lb.Service
	backends []lb.Backend
	hops     []nexthop.Result
	// ring is what the ring is built from: a backend that can't be used has no
	// weight. size counts it all the same, so that a neighbour that comes and
	// goes doesn't change the ring's size.
	ring []maglev.Backend
	size int
}

func (p *Plane) plan(svc *lb.Service) plan {
	pl := plan{svc: svc, backends: slices.Clone(svc.Backends)}
	slices.SortFunc(pl.backends, func(a, b lb.Backend) int { return a.ID().Compare(b.ID()) })
	targets := make([]nexthop.Target, len(pl.backends))
	pl.ring = make([]maglev.Backend, len(pl.backends))
	for i, b := range pl.backends {
		targets[i] = target(svc, b)
		pl.ring[i] = maglev.Backend{ID: b.ID(), Weight: b.Weight}
	}
	pl.size = maglev.Size(pl.ring)
	pl.hops = p.resolver.Follow(svc.VIP, targets)
	for i := range pl.hops {
		if pl.hops[i].Err != nil {
			pl.ring[i].Weight = 0
		}
	}
	return pl
}

// apply writes the next version of the service, or returns errBusy.
func (p *Plane) apply(ctx context.Context, pl plan) (dataplane.Programmed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return dataplane.Programmed{}, err
	}
	s, known := p.services[pl.svc.VIP]
	if !known {
		s = &service{traffic: map[lb.BackendID]extent{}}
	}
	if err := p.vacate(s, known); err != nil {
		return dataplane.Programmed{}, err
	}
	next, err := p.stage(s, pl)
	if err != nil {
		return dataplane.Programmed{}, err
	}
	if next.same(s) {
		p.unstage(s, next)
		return next.programmed(pl), nil
	}
	if err := p.publish(pl.svc.VIP, s, next, known); err != nil {
		p.unstage(s, next)
		return dataplane.Programmed{}, err
	}
	return next.programmed(pl), nil
}

// vacate returns errBusy while packets may still read the view, or the element
// of the VIP table, that a change would write.
func (p *Plane) vacate(s *service, known bool) error {
	if known && !p.grace.over(s.flipped) {
		return errBusy{s.flipped}
	}
	if !known && !p.grace.over(p.deleted) {
		return errBusy{p.deleted} // a reader may hold the element that is reused
	}
	return nil
}

// publish makes a staged version visible and retires what it replaces.
func (p *Plane) publish(vip lb.VIP, s *service, next *version, known bool) error {
	number, view := s.number, 1-s.active
	if !known {
		number = next.number
		if err := write(p.program.services, serviceOffset(number.base), balancerService{}); err != nil {
			return err
		}
	}
	if err := write(p.program.services, viewOffset(number.base, view), next.view()); err != nil {
		return err
	}
	if err := p.program.flip(number.base, view); err != nil {
		return err
	}
	if !known {
		if err := p.program.maps.Vips.Put(vipKey(vip), number.base); err != nil {
			return fmt.Errorf("vip table: %w", err)
		}
		p.services[vip] = s
	}
	p.replace(s, next, number, view)
	return nil
}

// replace records a visible version and retires the one before.
func (p *Plane) replace(s *service, next *version, number extent, view uint32) {
	now := p.grace.now()
	p.backends.retire(s.table, now)
	if next.ring != s.ring {
		p.rings.retire(s.ring, now)
	}
	for id, t := range s.traffic {
		if _, stays := next.traffic[id]; !stays {
			s.leaving = append(s.leaving, leaver{t, now})
		}
	}
	s.number, s.active, s.flipped = number, view, now
	s.ring, s.size, s.flags = next.ring, next.size, next.flags
	s.entries, s.table, s.traffic = next.entries, next.table, next.traffic
	s.built, s.shares = next.built, next.shares
}

// Delete takes the VIP out of the table and frees what the service used.
func (p *Plane) Delete(ctx context.Context, vip lb.VIP) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return fmt.Errorf("vip %s: %w", vip, err)
	}
	return p.delete(vip)
}

func (p *Plane) delete(vip lb.VIP) error {
	s, known := p.services[vip]
	if !known {
		return nil
	}
	if err := p.program.maps.Vips.Delete(vipKey(vip)); err != nil {
		return fmt.Errorf("vip %s: vip table: %w", vip, err)
	}
	delete(p.services, vip)
	p.resolver.Forget(vip)
	now := p.grace.now()
	p.deleted = now
	p.numbers.retire(s.number, now)
	p.rings.retire(s.ring, now)
	p.backends.retire(s.table, now)
	for _, t := range s.traffic {
		p.traffic.retire(t, now)
	}
	for _, l := range s.leaving {
		p.traffic.retire(l.traffic, now)
	}
	return nil
}

// Prune deletes every service that is not kept, adopted ones included.
func (p *Plane) Prune(ctx context.Context, keep []lb.VIP) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return err
	}
	kept := make(map[lb.VIP]bool, len(keep))
	for _, vip := range keep {
		kept[vip] = true
	}
	var errs []error
	for vip := range p.services {
		if !kept[vip] {
			errs = append(errs, p.delete(vip))
		}
	}
	return errors.Join(errs...)
}
