// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
	"fairlead.io/fairlead/internal/dataplane/xdp/probe"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// paths are the ways to backends that are open for probes.
type paths struct {
	// mu guards sender, which is nil before the first way, and closed. It is taken
	// before the plane's, if both are.
	mu     sync.Mutex
	sender *probe.Sender
	closed bool

	// open are the ways of each service by their numbers, taken all numbers and
	// last the one that was given out last: a number that was given back is not
	// soon another's. The plane's mu guards them.
	open  map[lb.VIP]map[uint32]*path
	taken map[uint32]struct{}
	last  uint32
}

// path is an open way.
type path struct {
	sender  *probe.Sender
	backend lb.BackendID
	// place is where the backend is in the backend table, plus 1; 0 is nowhere.
	place uint32
}

// Open opens a way to a backend for health checks; it implements health.Paths.
//
// In NAT mode that is the way to the backend's address. In the other modes it is
// a connection to the VIP, whose packets are sent to the one backend as a
// client's would be. The service has to be programmed; the way follows the
// backend's place in the tables, and with it its next hop, until release is
// called. An error says that the backend has no next hop, and why. Packets on a
// way that has lost it later are dropped; opening again tells.
//
// Backends in VXLAN and Geneve segments can be probed if their answers find the
// way to an address of this node. Tenants that have equal addresses can't.
func (p *Plane) Open(svc *lb.Service, b lb.Backend, port uint16) (path health.Path, release func(), err error) {
	if !svc.Forward.DSR() {
		return health.Path{Target: netip.AddrPortFrom(b.Address, port)}, func() {}, nil
	}
	sender, source, err := p.paths.send(p, svc.Address, target(svc, b).Address)
	var number uint32
	if err == nil {
		number, err = p.openPath(sender, svc.VIP, b.ID())
	}
	if err != nil {
		return health.Path{}, nil, fmt.Errorf("backend %s of vip %s: %w", b.ID(), svc.VIP, err)
	}
	return health.Path{
		Target: netip.AddrPortFrom(svc.Address, port), Source: source, Mark: probe.Mark(number),
	}, func() { p.closePath(svc.VIP, number) }, nil
}

// send makes what probes need in this network namespace, when the first way is
// opened: a node that probes nothing has nothing of it. It returns the address
// that probes of the VIP come from.
func (w *paths) send(p *Plane, vip, towards netip.Addr) (*probe.Sender, netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, netip.Addr{}, errClosed
	}
	if w.sender == nil {
		var err error
		w.sender, err = probe.Open(probe.Config{
			Tables: p.kernel.shared, Seed: p.seed, Targets: p.maxPaths(), Log: p.config.Log,
		})
		if err != nil {
			return nil, netip.Addr{}, fmt.Errorf("%w: %w", health.ErrLocal, err)
		}
	}
	source, err := w.sender.Source(vip, towards)
	return w.sender, source, err
}

// close ends all ways.
func (w *paths) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.sender == nil {
		return nil
	}
	return w.sender.Close()
}

// maxPaths is as many as there can be backends.
func (p *Plane) maxPaths() int { return min(p.kernel.capacity.Backends, probe.MaxTargets) }

// openPath gives a new way its number and leads it to the backend.
func (p *Plane) openPath(sender *probe.Sender, vip lb.VIP, id lb.BackendID) (number uint32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, errClosed
	}
	s, known := p.services[vip]
	if !known {
		return 0, fmt.Errorf("no next hop: the service is not programmed: %w", health.ErrPending)
	}
	if err := s.now.noHop(id); err != nil {
		return 0, err
	}
	w := &p.paths
	most := uint32(p.maxPaths())
	if uint32(len(w.taken)) >= most {
		return 0, fmt.Errorf("%w: %d ways for probes at once are too many", health.ErrLocal, most+1)
	}
	for taken := true; taken; _, taken = w.taken[w.last] {
		w.last = (w.last + 1) % most
	}
	way := &path{sender: sender, backend: id}
	if err := way.lead(w.last, s.now.place(id)); err != nil {
		return 0, fmt.Errorf("%w: %w", health.ErrLocal, err)
	}
	if w.open == nil {
		w.open, w.taken = make(map[lb.VIP]map[uint32]*path), make(map[uint32]struct{})
	}
	if w.open[vip] == nil {
		w.open[vip] = make(map[uint32]*path)
	}
	w.open[vip][w.last], w.taken[w.last] = way, struct{}{}
	return w.last, nil
}

// closePath ends a way; once more does nothing.
func (p *Plane) closePath(vip lb.VIP, number uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	way, open := p.paths.open[vip][number]
	if p.closed || !open {
		return
	}
	if err := way.lead(number, 0); err != nil {
		p.config.Log.Warn("probes still reach a backend", "vip", vip, "backend", way.backend, "error", err)
	}
	delete(p.paths.taken, number)
	delete(p.paths.open[vip], number)
	if len(p.paths.open[vip]) == 0 {
		delete(p.paths.open, vip)
	}
}

// leadPaths leads the ways of a service to where its backends are in a version
// that packets see; nil is no service. The places of the version before are not
// retired yet.
func (p *Plane) leadPaths(vip lb.VIP, v *version) {
	for number, way := range p.paths.open[vip] {
		var place uint32
		if v != nil {
			place = v.place(way.backend)
		}
		if err := way.lead(number, place); err != nil {
			p.config.Log.Warn("probes reach the wrong backend", "vip", vip, "backend", way.backend, "error", err)
		}
	}
}

// lead makes a place of the backend table the way's target.
func (w *path) lead(number, place uint32) (err error) {
	switch place {
	case w.place:
		return nil
	case 0:
		err = w.sender.Drop(number)
	default:
		err = w.sender.Aim(number, place-1)
	}
	if err == nil {
		w.place = place
	}
	return err
}

// find returns the slot of a backend, or -1.
func (v *version) find(id lb.BackendID) int {
	address, port := id.Addr().As16(), wirePort(id.Port())
	return slices.IndexFunc(v.slots, func(s slot) bool {
		return s.detail.Port == port && s.detail.Address == address
	})
}

// place is where a backend is in the backend table, plus 1; 0 if it isn't.
func (v *version) place(id lb.BackendID) uint32 {
	n := v.find(id)
	if n < 0 {
		return 0
	}
	return v.table.base + uint32(n) + 1
}

// noHop says why a backend can't be sent anything, or nil.
func (v *version) noHop(id lb.BackendID) error {
	n := v.find(id)
	switch {
	case n < 0:
		return fmt.Errorf("no next hop: the backend is not programmed: %w", health.ErrPending)
	case v.slots[n].Ifindex != 0:
		return nil
	case v.slots[n].unreached == nil:
		return errors.New("no next hop")
	case errors.Is(v.slots[n].unreached, nexthop.ErrPending):
		return fmt.Errorf("no next hop: %w: %w", v.slots[n].unreached, health.ErrPending)
	}
	return fmt.Errorf("no next hop: %w", v.slots[n].unreached)
}
