// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"slices"

	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
)

// plan is a service with how each of its backends is reached.
type plan struct {
	svc *lb.Service
	// backends are in the order of their names, which all nodes share; those that
	// have left the service but may still have flows come behind them.
	backends []lb.Backend
	hops     []nexthop.Result
	// balancers are how the service's other balancers are reached, if that matters.
	balancers []nexthop.Result
	// kept says which hops are those of an earlier agent.
	kept []bool
	// ring is what the ring is built from: a backend that can't be used, or is
	// down, has no weight. size counts it all the same, so that a neighbour or a
	// server that comes and goes doesn't change the ring's size.
	ring []maglev.Backend
	size int
}

// plan finds the next hops of a service's backends.
func (p *Plane) plan(svc *lb.Service) plan {
	pl := plan{svc: svc, backends: slices.Clone(svc.Backends)}
	slices.SortFunc(pl.backends, func(a, b lb.Backend) int { return a.ID().Compare(b.ID()) })
	pl.ring = make([]maglev.Backend, len(pl.backends))
	for i, b := range pl.backends {
		pl.ring[i] = maglev.Backend{ID: b.ID(), Weight: b.Weight, Share: b.Share}
	}
	pl.size = maglev.Size(pl.ring)
	pl.backends = append(pl.backends, p.leftBehind(svc)...)
	targets := make([]nexthop.Target, len(pl.backends))
	for i, b := range pl.backends {
		targets[i] = target(svc, b)
	}
	hops := p.resolver.Follow(svc.VIP, append(targets, stations(svc)...))
	pl.hops, pl.balancers = hops[:len(targets)], hops[len(targets):]
	p.keepAdopted(&pl)
	pl.stay()
	for i := range pl.ring {
		if pl.hops[i].Err != nil || pl.backends[i].Down {
			pl.ring[i].Weight = 0
		}
	}
	return pl
}

// leftBehind are the backends that have slots in the service but are not among
// its backends any more. They get no new flows.
func (p *Plane) leftBehind(svc *lb.Service) []lb.Backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, known := p.services[svc.VIP]
	if !known {
		return nil
	}
	present := make(map[lb.BackendID]bool, len(svc.Backends))
	for _, b := range svc.Backends {
		present[b.ID()] = true
	}
	var left []lb.Backend
	for i := range s.now.slots {
		if one := &s.now.slots[i]; one.taken() && !one.adopted() && !present[one.id()] {
			b := one.backend
			b.Weight = 0
			left = append(left, b)
		}
	}
	return left
}

// keepAdopted lets backends that an earlier agent could reach be reached as
// before until the kernel has answered for their neighbours: a restart is no
// reason to doubt them.
func (p *Plane) keepAdopted(pl *plan) {
	pl.kept = make([]bool, len(pl.backends))
	p.mu.Lock()
	defer p.mu.Unlock()
	s, known := p.services[pl.svc.VIP]
	if !known {
		return
	}
	numbers := slotNumbers(s.now.slots)
	for i, b := range pl.backends {
		n, known := numbers[b.ID()]
		if !known || !errors.Is(pl.hops[i].Err, nexthop.ErrPending) {
			continue
		}
		if old := &s.now.slots[n]; old.adopted() && old.usable() {
			pl.hops[i], pl.kept[i] = nexthop.Result{Hop: old.hop()}, true
		}
	}
}
