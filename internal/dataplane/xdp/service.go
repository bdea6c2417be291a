// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
)

// service is what the tables hold of one service.
type service struct {
	now     *version // the version that packets see
	number  extent   // of size 1; 0 before packets see the service
	active  uint32   // the view in use
	flipped ticket   // when it came into use; the other view may be written when it is over
	// backends are the service's as last updated; nil if only an earlier agent
	// knew. idle is how long its flows may be silent, with idleSlack.
	backends map[lb.BackendID]struct{}
	idle     time.Duration
	// left counts the slots of backends that have left the service.
	left int
	// features are what the service needs of the program.
	features features
	// members are who shares it, by what the program knows them.
	members members
	// sweepAt is when its flow records are due to be read.
	sweepAt time.Duration
	// learning is when the flows of a step began to be learned; 0 if there is no
	// such step.
	learning time.Duration
	leaving  []leaver
	gone     dataplane.Traffic
	flows    flowCounts
	sessions int // of NAT, when they were last counted
}

func newService() *service {
	return &service{now: &version{ring: &tracking.Ring{}}}
}

// leaver is a backend that left while packets to it may be on their way.
type leaver struct {
	slot
	after ticket
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

// apply writes the next version of the service, or returns errBusy.
func (p *Plane) apply(ctx context.Context, pl plan) (dataplane.Programmed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return dataplane.Programmed{}, err
	}
	vip := pl.svc.VIP
	s, known := p.services[vip]
	if !known {
		s = newService()
	}
	if err := p.vacate(s, known); err != nil {
		return dataplane.Programmed{}, err
	}
	if err := p.prepare(pl.svc); err != nil {
		return dataplane.Programmed{}, err
	}
	if err := p.handOver(pl); err != nil {
		return dataplane.Programmed{}, err
	}
	next, err := p.stage(s, pl)
	if err != nil {
		return dataplane.Programmed{}, err
	}
	if err := p.show(vip, s, next, known); err != nil {
		return dataplane.Programmed{}, err
	}
	p.needs.replace(s.features, featuresOf(pl.svc))
	s.want(pl.svc)
	p.awaitLearned(vip, s, p.clock())
	return next.programmed(pl), errors.Join(p.showAddress(vip), p.meet(s, membersOf(pl)))
}

// want takes note of what the service says that packets don't see.
func (s *service) want(svc *lb.Service) {
	s.features = featuresOf(svc)
	s.idle = svc.Idle() + idleSlack
	s.backends = make(map[lb.BackendID]struct{}, len(svc.Backends))
	for _, b := range svc.Backends {
		s.backends[b.ID()] = struct{}{}
	}
	s.countLeft()
}

// show makes packets see a staged version, if they can tell it from the present
// one.
func (p *Plane) show(vip lb.VIP, s *service, next *version, known bool) error {
	if known && next.same(s.now) {
		p.unstage(s, next)
		s.now = next
		return nil
	}
	err := p.publish(vip, s, next, known)
	if err != nil {
		p.unstage(s, next)
	}
	return err
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
		var err error
		if number, err = p.newNumber(vip); err != nil {
			return err
		}
	}
	err := p.fill(number.base, view, s.now, next)
	if err == nil {
		err = p.expose(vip, number.base, view, known)
	}
	if err != nil {
		err = errors.Join(err, p.writeQUIC(number.base, next, s.now))
		if !known {
			p.numbers.release(number)
		}
		return err
	}
	if !known {
		p.services[vip] = s
	}
	s.number, s.active = number, view
	p.leadPaths(vip, next)
	p.replace(s, next)
	return nil
}

// newNumber takes a number for a service; what is kept by number begins at zero.
func (p *Plane) newNumber(vip lb.VIP) (extent, error) {
	number, err := p.take(p.numbers, 1)
	if err != nil {
		return extent{}, err
	}
	err = errors.Join(
		write(p.kernel.services, serviceOffset(number.base), balancerService{}),
		write(p.kernel.serviceVIPs, serviceVIPOffset(number.base), vipKey(vip)),
		p.kernel.clearFlowStats(number.base),
	)
	if err != nil {
		p.numbers.release(number)
	}
	return number, err
}

// fill writes the view that is not in use, and what a service has only once.
func (p *Plane) fill(number, view uint32, old, next *version) error {
	if err := write(p.kernel.services, viewOffset(number, view), next.view()); err != nil {
		return err
	}
	if err := write(p.kernel.services, sourcesOffset(number, view), next.sources.number.base); err != nil {
		return err
	}
	if err := write(p.kernel.services, serviceOffset(number)+unsafe.Offsetof(balancerService{}.Round), next.round); err != nil {
		return err
	}
	if err := p.kernel.writeLimits(number, next.limits); err != nil {
		return err
	}
	if err := write(p.kernel.services, serviceOffset(number)+unsafe.Offsetof(balancerService{}.NatIdle), next.natIdle); err != nil {
		return err
	}
	if err := p.kernel.writeClientIdle(number, next.clientIdle); err != nil {
		return err
	}
	return p.writeQUIC(number, old, next)
}

// expose brings a view into use.
func (p *Plane) expose(vip lb.VIP, number, view uint32, known bool) error {
	if err := p.kernel.flip(number, view); err != nil {
		return err
	}
	if !known {
		return p.kernel.putVIP(vipKey(vip), number)
	}
	return nil
}

// replace records a visible version and retires what only the one before used.
func (p *Plane) replace(s *service, next *version) {
	now := p.grace.now()
	old := s.now
	if next.entries != old.entries {
		p.rings.retire(old.entries, now)
	}
	if next.previous != old.previous {
		p.rings.retire(old.previous, now)
	}
	if next.table != old.table {
		p.backends.retire(old.table, now)
	}
	if next.sources.number != old.sources.number {
		p.sources.retire(old.sources, now)
	}
	for i := range old.slots {
		one := &old.slots[i]
		if one.taken() && (i >= len(next.slots) || !next.slots[i].taken() || next.slots[i].Generation != one.Generation) {
			s.leaving = append(s.leaving, leaver{*one, now})
		}
	}
	next.fresh = nil
	s.now, s.flipped = next, now
	p.clientsLeft = p.clientsLeft || next.remembers()
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
	if err := p.kernel.deleteVIP(vipKey(vip)); err != nil {
		return fmt.Errorf("vip %s: %w", vip, err)
	}
	delete(p.services, vip)
	p.leadPaths(vip, nil)
	p.needs.replace(s.features, 0)
	p.resolver.Forget(vip)
	now := p.grace.now()
	p.deleted = now
	p.numbers.retire(s.number, now)
	p.rings.retire(s.now.entries, now)
	p.rings.retire(s.now.previous, now)
	p.backends.retire(s.now.table, now)
	p.sources.retire(s.now.sources, now)
	for i := range s.now.slots {
		if s.now.slots[i].taken() {
			p.traffic.retire(s.now.slots[i].traffic(), now)
		}
	}
	for _, l := range s.leaving {
		p.traffic.retire(l.traffic(), now)
	}
	if err := p.dropServers(s.number.base, s.now.servers, nil); err != nil {
		return fmt.Errorf("vip %s: %w", vip, err)
	}
	return errors.Join(p.showAddress(vip), p.meet(s, nil))
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
	return errors.Join(append(errs, p.disownMembers())...)
}
