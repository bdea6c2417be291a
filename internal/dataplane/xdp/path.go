// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"

	"fairlead.io/fairlead/internal/dataplane/xdp/healthpath"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

// paths are the paths to backends that are open for probes.
type paths struct {
	catalog *catalog
	config  healthpath.Config

	// opening guards sender, which is nil before the first path, and closed. It is
	// locked before the plane's mu, if both are.
	opening sync.Mutex
	sender  *healthpath.Sender
	closed  bool

	// open are the paths of each service by their numbers, taken all numbers and
	// last the one that was given out last: a number that was given back is not
	// soon another's. The catalog's mu guards them.
	open  map[lb.VIP]map[uint32]*path
	taken map[uint32]struct{}
	last  uint32
}

// newPaths returns paths for as many probes as there can be backends. The programs for probes
// have no NAT: GrowSessions doesn't change the tables that they read.
func newPaths(c *catalog, cfg Config) *paths {
	return &paths{
		catalog: c, open: make(map[lb.VIP]map[uint32]*path), taken: make(map[uint32]struct{}),
		config: healthpath.Config{
			Tables: maps.Clone(c.tables.ByName), Seed: cfg.Seed, Targets: min(c.tables.Capacity.Backends, healthpath.MaxTargets), Log: cfg.Log,
		},
	}
}

// path is an open path.
type path struct {
	sender  *healthpath.Sender
	backend lb.BackendID
	// place is where the backend is in the backend table, plus 1; 0 is nowhere.
	place uint32
}

// Open opens a path to a backend for health checks; it implements health.Paths.
//
// In NAT mode that is the path to the backend's address. In the other modes it is
// a connection to the VIP, whose packets are sent to the one backend as a
// client's would be. The service has to be programmed; the path follows the
// backend's place in the tables, and with it its next hop, until release is
// called. The error is why the backend has no next hop. Packets on a
// path that has lost it later are dropped; opening again returns the reason.
//
// Backends in VXLAN and Geneve segments can be probed if their answers find the
// way to an address of this node. Tenants that have equal addresses can't.
func (p *Plane) Open(svc *lb.Service, b lb.Backend, port uint16) (path health.Path, release func(), err error) {
	if svc.Forward.Translates() {
		return health.Path{Target: netip.AddrPortFrom(b.Address, port)}, func() {}, nil
	}
	sender, source, err := p.paths.send(svc.Address, target(svc, b).Address)
	var number uint32
	if err == nil {
		number, err = p.paths.add(sender, svc.VIP, b.ID())
	}
	if err != nil {
		return health.Path{}, nil, fmt.Errorf("backend %s of vip %s: %w", b.ID(), svc.VIP, err)
	}
	return health.Path{
		Target: netip.AddrPortFrom(svc.Address, port), Source: source, Mark: healthpath.Mark(number),
	}, func() { p.paths.remove(svc.VIP, number) }, nil
}

// send sets up probes in this network namespace, when the first path is opened. It
// returns the address that probes of the VIP come from.
func (w *paths) send(vip, towards netip.Addr) (*healthpath.Sender, netip.Addr, error) {
	w.opening.Lock()
	defer w.opening.Unlock()
	if w.closed {
		return nil, netip.Addr{}, table.ErrClosed
	}
	if w.sender == nil {
		var err error
		if w.sender, err = healthpath.Open(w.config); err != nil {
			return nil, netip.Addr{}, fmt.Errorf("%w: %w", health.ErrLocal, err)
		}
	}
	source, err := w.sender.Source(vip, towards)
	return w.sender, source, err
}

// close ends all paths.
func (w *paths) close() error {
	w.opening.Lock()
	defer w.opening.Unlock()
	w.closed = true
	if w.sender == nil {
		return nil
	}
	return w.sender.Close()
}

// add gives a new path its number and points it to the backend.
func (w *paths) add(sender *healthpath.Sender, vip lb.VIP, id lb.BackendID) (number uint32, err error) {
	w.catalog.mu.Lock()
	defer w.catalog.mu.Unlock()
	if w.catalog.closed {
		return 0, table.ErrClosed
	}
	s, known := w.catalog.services[vip]
	if !known {
		return 0, fmt.Errorf("no next hop: the service is not programmed: %w", health.ErrPending)
	}
	if err := s.now.noHop(id); err != nil {
		return 0, err
	}
	if len(w.taken) >= w.config.Targets {
		return 0, fmt.Errorf("%w: too many paths for probes: at most %d", health.ErrLocal, w.config.Targets)
	}
	for taken := true; taken; _, taken = w.taken[w.last] {
		w.last = (w.last + 1) % uint32(w.config.Targets)
	}
	one := &path{sender: sender, backend: id}
	if err := one.point(w.last, s.now.place(id, s.Backends.Base)); err != nil {
		return 0, fmt.Errorf("%w: %w", health.ErrLocal, err)
	}
	if w.open[vip] == nil {
		w.open[vip] = make(map[uint32]*path)
	}
	w.open[vip][w.last], w.taken[w.last] = one, struct{}{}
	return w.last, nil
}

// remove ends a path; a second call does nothing.
func (w *paths) remove(vip lb.VIP, number uint32) {
	w.catalog.mu.Lock()
	defer w.catalog.mu.Unlock()
	one, open := w.open[vip][number]
	if w.catalog.closed || !open {
		return
	}
	if err := one.point(number, 0); err != nil {
		w.config.Log.Warn("probes still reach a backend", "vip", vip, "backend", one.backend, "error", err)
	}
	delete(w.taken, number)
	delete(w.open[vip], number)
	if len(w.open[vip]) == 0 {
		delete(w.open, vip)
	}
}

// repoint points the paths of a service to where its backends are in a version that
// packets see, from base on; nil without a service. The places of the version before are not retired
// yet.
func (w *paths) repoint(vip lb.VIP, v *version, base uint32) {
	for number, one := range w.open[vip] {
		var place uint32
		if v != nil {
			place = v.place(one.backend, base)
		}
		if err := one.point(number, place); err != nil {
			w.config.Log.Warn("probes reach the wrong backend", "vip", vip, "backend", one.backend, "error", err)
		}
	}
}

// point makes a place of the backend table the path's target.
func (w *path) point(number, place uint32) error {
	if place == w.place {
		return nil
	}
	err := w.sender.Aim(number, place)
	if err == nil {
		w.place = place
	}
	return err
}

// noHop is why a backend can't be sent anything, or nil.
func (v *version) noHop(id lb.BackendID) error {
	n, found := v.number(id)
	switch {
	case !found:
		return fmt.Errorf("no next hop: the backend is not programmed: %w", health.ErrPending)
	case v.slots[n].Ifindex != 0:
		return nil
	case v.slots[n].hopErr == nil:
		return errors.New("no next hop")
	case errors.Is(v.slots[n].hopErr, nexthop.ErrPending):
		return fmt.Errorf("no next hop: %w: %w", v.slots[n].hopErr, health.ErrPending)
	}
	return fmt.Errorf("no next hop: %w", v.slots[n].hopErr)
}
