// SPDX-License-Identifier: Apache-2.0

// Package fake is a data plane that moves no packets: it keeps in memory what
// it was told, fails on demand, and prints its state as text.
//
// It stands in for a kernel in the tests of all that drives a data plane
// (reconcile, the agent), and it is the model of the contract: rings are real
// Maglev rings, and Probe picks backends from them.
package fake

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/stale"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
)

// Seed is the seed of all rings, and of the choice of their entries.
const Seed = 1

// DataPlane is a dataplane.DataPlane in memory.
type DataPlane struct {
	// Fail, if set, is asked before each call of op "update", "delete" or
	// "prune" (with the zero VIP); its error becomes the call's. Set it before
	// the first call; it may be called from several goroutines.
	Fail func(op string, vip lb.VIP) error

	stale *stale.Queue

	mu       sync.Mutex
	services map[lb.VIP]*service
	unusable map[lb.BackendID]string
	calls    []string
	exits    map[string]uint64
	flows    dataplane.FlowCounts
}

// service is one balanced service.
type service struct {
	lb.Service
	ring       []uint16
	programmed dataplane.Programmed
	total      dataplane.Traffic
	backends   map[lb.BackendID]dataplane.Traffic
}

var _ dataplane.DataPlane = (*DataPlane)(nil)

// New returns an empty data plane. Close ends its goroutine.
func New() *DataPlane {
	return &DataPlane{
		stale:    stale.New(),
		services: map[lb.VIP]*service{},
		unusable: map[lb.BackendID]string{},
		exits:    map[string]uint64{},
		flows:    dataplane.FlowCounts{},
	}
}

// Limits returns what the data plane serves: every mode and segment, and
// enough services and backends for any test.
func Limits() dataplane.Limits {
	return dataplane.Limits{
		Forwards:    []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve, lb.NAT, lb.DNAT},
		Segments:    []lb.SegmentType{lb.SegmentVLAN, lb.SegmentVXLAN, lb.SegmentGeneve},
		MaxServices: 4096,
		MaxBackends: 4096,
	}
}

// Update programs svc; see dataplane.DataPlane.
func (d *DataPlane) Update(ctx context.Context, svc *lb.Service) (dataplane.Programmed, error) {
	if err := d.begin(ctx, "update", svc.VIP); err != nil {
		return dataplane.Programmed{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	old, exists := d.services[svc.VIP]
	if limits := Limits(); len(svc.Backends) > limits.MaxBackends {
		return dataplane.Programmed{}, fmt.Errorf("vip %s: %d backends: at most %d", svc.VIP, len(svc.Backends), limits.MaxBackends)
	} else if !exists && len(d.services) >= limits.MaxServices {
		return dataplane.Programmed{}, fmt.Errorf("vip %s: no room: %d services", svc.VIP, len(d.services))
	}
	next, err := d.program(svc)
	if err != nil {
		return dataplane.Programmed{}, fmt.Errorf("vip %s: %w", svc.VIP, err)
	}
	if exists {
		next.inherit(old)
	}
	d.services[svc.VIP] = next
	return next.state(), nil
}

// program builds the ring of svc from its usable backends.
func (d *DataPlane) program(svc *lb.Service) (*service, error) {
	s := &service{Service: *svc, backends: map[lb.BackendID]dataplane.Traffic{}}
	s.Backends = slices.Clone(svc.Backends)
	s.Sources = lb.Sources{Allow: slices.Clone(svc.Sources.Allow), Deny: slices.Clone(svc.Sources.Deny)}
	candidates := make([]maglev.Backend, len(s.Backends))
	for i, b := range s.Backends {
		candidates[i] = maglev.Backend{ID: b.ID(), Weight: b.Weight, Share: b.Share}
	}
	size := maglev.Size(candidates) // of all, so that it stays when one can't be used
	for i, b := range s.Backends {
		state := dataplane.BackendState{ID: b.ID(), Reason: d.outOfUse(b)}
		if state.InUse = state.Reason == ""; !state.InUse {
			candidates[i].Weight = 0
		}
		s.programmed.Backends = append(s.programmed.Backends, state)
		s.backends[state.ID] = dataplane.Traffic{}
	}
	ring, err := maglev.Build(Seed, size, candidates)
	if err != nil {
		return nil, err
	}
	s.ring, s.programmed.RingSize = ring, len(ring)
	for _, index := range ring {
		s.programmed.Backends[index].RingEntries++
	}
	return s, nil
}

// outOfUse says why a backend gets no new flows; empty if it does.
func (d *DataPlane) outOfUse(b lb.Backend) string {
	switch {
	case b.Down:
		return "unhealthy"
	case d.unusable[b.ID()] != "":
		return d.unusable[b.ID()]
	case b.Drained:
		return "drained"
	case b.Weight == 0:
		return "weight 0"
	}
	return ""
}

// inherit takes over the counters of what s replaces.
func (s *service) inherit(old *service) {
	s.total = old.total
	for id := range s.backends {
		s.backends[id] = old.backends[id]
	}
}

// state returns a copy of what was programmed.
func (s *service) state() dataplane.Programmed {
	p := s.programmed
	p.Backends = slices.Clone(p.Backends)
	return p
}

// Delete forgets vip; see dataplane.DataPlane.
func (d *DataPlane) Delete(ctx context.Context, vip lb.VIP) error {
	if err := d.begin(ctx, "delete", vip); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.services, vip)
	return nil
}

// Prune forgets all services but those in keep; see dataplane.DataPlane.
func (d *DataPlane) Prune(ctx context.Context, keep []lb.VIP) error {
	if err := d.begin(ctx, "prune", lb.VIP{}); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for vip := range d.services {
		if !slices.Contains(keep, vip) {
			delete(d.services, vip)
		}
	}
	return nil
}

// Stale delivers the VIPs given to MarkStale.
func (d *DataPlane) Stale() <-chan lb.VIP { return d.stale.Out() }

// Close ends the delivery of stale VIPs. It is called once.
func (d *DataPlane) Close() error {
	d.stale.Close()
	return nil
}

// begin records a call and says whether it is to fail.
func (d *DataPlane) begin(ctx context.Context, op string, vip lb.VIP) error {
	err := ctx.Err()
	if err == nil && d.Fail != nil {
		err = d.Fail(op, vip)
	}
	call := op
	if vip != (lb.VIP{}) {
		call += " " + vip.String()
		if err != nil {
			err = fmt.Errorf("vip %s: %w", vip, err)
		}
	}
	if err != nil {
		call += ": failed"
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
	return err
}
