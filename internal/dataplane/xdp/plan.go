// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"slices"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
	"fairlead.io/fairlead/internal/nexthop"
)

// plan is the input of a service's next version.
type plan struct {
	svc        *lb.Service
	properties properties
	features   program.Features
	// backends are in the order of their names, which all nodes share; those that
	// have left the service but may still have flows come behind them. Slots are
	// their entries in the tables, and refer to them.
	backends []lb.Backend
	hops     []nexthop.Result
	slots    []slot
	// balancers are how the service's other balancers are reached, if that matters.
	balancers []nexthop.Result
	// gone are backends that have left, and whose route has.
	gone map[lb.BackendID]bool
	// kept marks the hops that an earlier agent used.
	kept []bool
	// ring is the input of the ring's construction: a backend that can't be used, or
	// is down, has no weight. size counts it all the same, so that a neighbour or a
	// server that comes and goes doesn't change the ring's size. indexes is the ring,
	// if it is built: if it is another one than before.
	ring    []maglev.Backend
	size    int
	indexes []uint16
	built   bool
	// devices are those at which packets have to be handed over, with a bridge's
	// ports.
	devices []handoverDevice
}

// plan finds the next hops of a service's backends, and builds its ring without
// keeping other services waiting.
func (p *Plane) plan(svc *lb.Service) (plan, error) {
	pl := plan{svc: svc, properties: *propertiesOf(svc), backends: slices.Clip(lb.SortBackends(svc.Backends))}
	pl.features = pl.properties.needs()
	pl.ring = make([]maglev.Backend, len(pl.backends))
	for i, b := range pl.backends {
		pl.ring[i] = maglev.Backend{ID: b.ID(), Weight: b.Weight, Share: b.Share}
	}
	pl.size = maglev.Size(pl.ring)
	pl.backends = append(pl.backends, p.leftBehind(&pl)...)
	targets := make([]nexthop.Target, len(pl.backends))
	for i, b := range pl.backends {
		targets[i] = target(svc, b)
	}
	hops := p.resolver.Follow(svc.VIP, append(targets, balancerTargets(svc)...))
	pl.hops, pl.balancers = hops[:len(targets)], hops[len(targets):]
	if shared := sharedByServers(&pl); shared != nil {
		return p.plan(shared)
	}
	before := p.keepAdopted(&pl)
	pl.loseRoutes(before)
	pl.reachLocal()
	pl.devices = handoverDevices(&pl, p.resolver)
	if err := p.loader.loadHandover(pl.devices); err != nil {
		return pl, err
	}
	return pl, pl.build(p.config.Seed, before)
}

// build makes the slots, and the ring unless that is the one of the version before.
func (pl *plan) build(seed uint64, before *version) (err error) {
	pl.slots = make([]slot, len(pl.backends))
	for i := range pl.backends {
		pl.slots[i] = entry(pl.svc, pl.backends[i], pl.hops[i].Hop)
		pl.slots[i].hopErr = pl.hops[i].Err
		if !pl.kept[i] { // or else it is still unknown
			pl.slots[i].backend = &pl.backends[i]
		}
	}
	for i := range pl.ring {
		if pl.hops[i].Err != nil || pl.backends[i].Down {
			pl.ring[i].Weight = 0
		}
	}
	if before == nil || !before.builtFrom(pl.ring, pl.size) {
		pl.indexes, err = maglev.Build(seed, pl.size, pl.ring)
		pl.built = true
	}
	return err
}

// present reports whether a backend is one of the service's.
func (pl *plan) present(id lb.BackendID) bool {
	_, found := lb.FindBackend(pl.backends[:len(pl.ring)], id)
	return found
}

// vipError says that backends are addresses of VIPs: balancers would send their packets to each
// other, or to themselves.
type vipError struct{ backends map[lb.BackendID]lb.VIP }

func (vipError) Error() string { return "backends are VIPs" }

// refuse takes backends out of the plan.
func (pl *plan) refuse(e vipError, seed uint64) error {
	for i, b := range pl.backends {
		if vip, refused := e.backends[b.ID()]; refused {
			pl.hops[i], pl.kept[i] = nexthop.Result{Err: fmt.Errorf("%s is the address of a VIP, %s", farEnd(b), vip)}, false
		}
	}
	return pl.build(seed, nil)
}

// lose takes a device that has vanished out of the plan: backends behind it can't be
// used until their next hop is known to be another.
func (pl *plan) lose(device program.Device, seed uint64) error {
	for i := range pl.hops {
		hop := pl.hops[i].Hop
		if pl.hops[i].Err == nil && hop.Handover && device == (program.Device{Index: hop.Index, MAC: hop.Source}) {
			pl.hops[i] = nexthop.Result{Err: fmt.Errorf("interface %s is gone", hop.Interface)}
		}
	}
	pl.devices = slices.DeleteFunc(pl.devices, func(d handoverDevice) bool { return d.Device == device })
	return pl.build(seed, nil)
}

// leftBehind are the backends that have slots in the service but are not among
// its backends any more. They get no new flows.
func (c *catalog) leftBehind(pl *plan) []lb.Backend {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.services[pl.svc.VIP]
	if !known {
		return nil
	}
	var left []lb.Backend
	for i := range s.now.slots {
		if b, known := s.now.slots[i].server(); known && !pl.present(b.ID()) {
			b.Weight = 0
			left = append(left, b)
		}
	}
	return left
}

// loseRoutes makes backends unreachable that were behind a device of their own, as pods are, if the
// route there is gone: the default route would take its place, and clients would get no answers. One
// that has left doesn't exist any more then. One that is still listed may have moved, unless it is
// this node's with DSR.
func (pl *plan) loseRoutes(before *version) {
	if before == nil || !slices.ContainsFunc(before.slots, func(s slot) bool { return s.device }) {
		return
	}
	pl.gone = map[lb.BackendID]bool{}
	numbers := slotNumbers(before.slots)
	for i, b := range pl.backends {
		n, known := numbers[b.ID()]
		left, own := i >= len(pl.ring), pl.svc.Forward == lb.DSR && b.Own()
		if !known || !before.slots[n].device || !left && !own {
			continue
		}
		if hop := &pl.hops[i]; hop.Err == nil && !hop.Hop.Handover {
			*hop = nexthop.Result{Err: fmt.Errorf("%w to %s", nexthop.ErrNoRoute, b.Address)}
		}
		if left && errors.Is(pl.hops[i].Err, nexthop.ErrNoRoute) {
			pl.gone[b.ID()] = true
		}
	}
}

// keepAdopted lets backends that an earlier agent could reach be reached as
// before until the kernel has resolved their neighbours. It returns the present
// version, or nil.
func (c *catalog) keepAdopted(pl *plan) *version {
	pl.kept = make([]bool, len(pl.backends))
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.services[pl.svc.VIP]
	if !known {
		return nil
	}
	for i, b := range pl.backends {
		if !errors.Is(pl.hops[i].Err, nexthop.ErrPending) {
			continue
		}
		n, known := s.now.number(b.ID())
		if !known {
			continue
		}
		if old := &s.now.slots[n]; old.adopted() && old.usable() {
			pl.hops[i], pl.kept[i] = nexthop.Result{Hop: old.hop()}, true
		}
	}
	return s.now
}
