// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// owned reads the entries that earlier agents left. If another program has flushed the tables while no agent
// ran, the local routes say whose the IPVS services at an address are.
func (k *kernel) owned() (map[lb.VIP]entry, error) {
	entries, err := k.tables.read()
	if err != nil || len(entries) > 0 {
		return entries, err
	}
	local, err := k.localRoutes()
	if err != nil || len(local) == 0 {
		return entries, err
	}
	all, err := k.ipvs.virtuals()
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if v.id.mark == 0 && local[v.id.address.Addr()] {
			entries[lb.VIP{Address: v.id.address.Addr(), Port: v.id.address.Port(), Protocol: v.id.protocol}] = entry{}
		}
	}
	return entries, nil
}

// entryOf is the tables' entry of a service.
func entryOf(s *lb.Service) entry {
	return entry{mark: s.FirewallMark, masquerade: s.Forward == lb.NAT, silent: s.Unavailable == lb.Drop}
}

// Update programs svc. It reads IPVS's state and changes only the differences.
func (p *Plane) Update(ctx context.Context, svc *lb.Service) (out dataplane.Programmed, err error) {
	if wrong := Limits().Check(svc); len(wrong) > 0 {
		return out, fmt.Errorf("vip %s: %w", svc.VIP, wrong[0])
	}
	err = p.do(ctx, func() error {
		out, err = p.update(svc)
		return err
	})
	if err != nil {
		return dataplane.Programmed{}, fmt.Errorf("vip %s: %w", svc.VIP, err)
	}
	return out, nil
}

func (p *Plane) update(svc *lb.Service) (out dataplane.Programmed, err error) {
	group, whole := p.group(svc.VIP, svc.FirewallMark, svc)
	for _, other := range group {
		if err := svc.Alike(*other); err != nil {
			return out, err
		}
	}
	routes := p.kernel.routesOf(group...)
	want := describe(group, routes.unreachable)
	is, err := p.kernel.read(want.virtual.id)
	if err != nil {
		return out, err
	}
	if is != nil && !p.owns(want.virtual.id) {
		return out, fmt.Errorf("IPVS service %s is another program's: delete it (ipvsadm) or configure it there", want.virtual.id)
	}
	before, known := p.owned[svc.VIP]
	if known {
		if err := p.count(svc.VIP); err != nil {
			return out, err
		}
	}
	if err := p.own(svc); err != nil {
		return out, err
	}
	if err = p.kernel.tune(svc); err == nil {
		err = p.kernel.program(is, want, !whole)
	}
	if err == nil {
		err = p.kernel.closeUnserved(svc.VIP)
	}
	if err == nil {
		err = p.kernel.addLocal(svc.Address)
	}
	if err != nil {
		return out, errors.Join(err, p.back(svc.VIP, before, known, is))
	}
	p.services[svc.VIP] = &programmed{Service: svc, routes: routes.of(svc)}
	if known && before.mark != svc.FirewallMark {
		if c := p.counts[svc.VIP]; c != nil {
			c.seen = counted{} // by the other IPVS service
		}
		if err := p.leave(svc.VIP, before.mark); err != nil {
			return out, err
		}
	}
	return want.states(group, svc, routes), nil
}

// owns says whether an IPVS service is Fairlead's.
func (p *Plane) owns(i id) bool {
	if i.mark == 0 {
		e, known := p.owned[lb.VIP{Address: i.address.Addr(), Port: i.address.Port(), Protocol: i.protocol}]
		return known && e.mark == 0
	}
	for vip, e := range p.owned {
		if idOf(vip, e.mark) == i {
			return true
		}
	}
	return false
}

// own makes the tables say that the service is Fairlead's, before anything else does.
func (p *Plane) own(svc *lb.Service) error {
	existed, err := p.kernel.tables.ensure()
	if err != nil {
		return err
	}
	if !existed {
		if err := p.ownAgain(); err != nil {
			return err
		}
	}
	want := entryOf(svc)
	before, known := p.owned[svc.VIP]
	if known && before == want {
		return nil
	}
	if err := p.kernel.tables.change(svc.VIP, entryIf(before, known), &want); err != nil {
		return err
	}
	p.owned[svc.VIP] = want
	return nil
}

// ownAgain fills tables that another program has flushed.
func (p *Plane) ownAgain() error {
	clear(p.kernel.tuned)
	clear(p.kernel.tables.closed)
	for vip, e := range p.owned {
		if err := errors.Join(p.kernel.tables.change(vip, nil, &e), p.kernel.closeUnserved(vip)); err != nil {
			return err
		}
	}
	return nil
}

func entryIf(e entry, known bool) *entry {
	if !known {
		return nil
	}
	return &e
}

// back undoes an update that failed: it restores the earlier service, or none.
func (p *Plane) back(vip lb.VIP, before entry, known bool, was *description) error {
	failed := p.owned[vip]
	if was == nil && len(p.sharing(vip, failed.mark)) == 0 {
		if err := p.kernel.remove(idOf(vip, failed.mark)); err != nil {
			return err
		}
	} else if was != nil {
		is, err := p.kernel.read(was.virtual.id)
		if err != nil {
			return err
		}
		if err := p.kernel.program(is, *was, false); err != nil {
			return err
		}
	}
	if !known {
		return p.disown(vip)
	}
	if err := p.kernel.tables.change(vip, &failed, &before); err != nil {
		return err
	}
	p.owned[vip] = before
	return nil
}

// Delete stops balancing vip.
func (p *Plane) Delete(ctx context.Context, vip lb.VIP) error {
	return p.do(ctx, func() error { return p.remove(vip) })
}

// Prune deletes every service of Fairlead's that is not in keep, also those that an earlier
// process left behind.
func (p *Plane) Prune(ctx context.Context, keep []lb.VIP) error {
	kept := map[lb.VIP]bool{}
	for _, vip := range keep {
		kept[vip] = true
	}
	return p.do(ctx, func() error {
		var errs []error
		for _, vip := range slices.SortedFunc(maps.Keys(p.owned), lb.VIP.Compare) {
			if !kept[vip] {
				errs = append(errs, p.remove(vip))
			}
		}
		return errors.Join(append(errs, p.removeLocals())...)
	})
}

// remove deletes a service. The tables know it until nothing else does.
func (p *Plane) remove(vip lb.VIP) error {
	e, known := p.owned[vip]
	if !known {
		return nil
	}
	if err := p.count(vip); err != nil {
		return fmt.Errorf("vip %s: %w", vip, err)
	}
	was := p.services[vip]
	delete(p.services, vip)
	if err := errors.Join(p.leave(vip, e.mark), p.disown(vip)); err != nil {
		if was != nil {
			p.services[vip] = was
		}
		return fmt.Errorf("vip %s: %w", vip, err)
	}
	delete(p.counts, vip)
	return nil
}

// hasAnother says whether another service has the VIP's address.
func (p *Plane) hasAnother(vip lb.VIP) bool {
	for other := range p.owned {
		if other != vip && other.Address == vip.Address {
			return true
		}
	}
	return false
}

// removeLocals removes the local routes of addresses that have no service.
func (p *Plane) removeLocals() error {
	local, err := p.kernel.localRoutes()
	for vip := range p.owned {
		delete(local, vip.Address)
	}
	for address := range local {
		err = errors.Join(err, p.kernel.removeLocal(address))
	}
	return err
}

// disown takes a VIP without IPVS service from the tables and the local addresses. With the
// last one, it deletes the tables and restores the settings.
func (p *Plane) disown(vip lb.VIP) error {
	if !p.hasAnother(vip) {
		if err := p.kernel.removeLocal(vip.Address); err != nil {
			return err
		}
	}
	if len(p.owned) == 1 {
		if err := errors.Join(p.kernel.restore(), p.kernel.tables.delete()); err != nil {
			return err
		}
		clear(p.kernel.tables.closed)
	} else {
		e := p.owned[vip]
		existed, err := p.kernel.tables.ensure()
		if err == nil && !existed {
			err = p.ownAgain()
		}
		if err == nil && !p.hasAnother(vip) {
			err = p.kernel.tables.setClosed(vip.Address, false)
		}
		if err == nil {
			err = p.kernel.tables.change(vip, &e, nil)
		}
		if err != nil {
			return err
		}
	}
	delete(p.owned, vip)
	return nil
}
