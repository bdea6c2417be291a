// SPDX-License-Identifier: Apache-2.0

// Package dataplanetest replaces a kernel's data plane in tests, and checks data
// planes: Fake, a data plane in memory; RunContract, the suite that every data
// plane passes; and History, random histories of one service that compare a data
// plane with a simple model of tracking.
package dataplanetest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
)

// Seed is the seed of all rings, and of the choice of their entries.
const Seed = 1

// Fake is a data plane that moves no packets: it keeps services in memory, fails on
// demand, and prints its state as text. Its rings are real Maglev rings, and Probe
// picks backends from them.
type Fake struct {
	// Fail, if set, is asked before each call of op "update", "delete" or
	// "prune" (with the zero VIP); its error becomes the call's. Set it before
	// the first call; it may be called from several goroutines.
	Fail func(op string, vip lb.VIP) error

	stale *dataplane.StaleQueue

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
	choice     *choice
}

var _ dataplane.DataPlane = (*Fake)(nil)

// NewFake returns an empty data plane. Close ends its goroutine.
func NewFake() *Fake {
	return &Fake{
		stale:    dataplane.NewStaleQueue(),
		services: map[lb.VIP]*service{},
		unusable: map[lb.BackendID]string{},
		exits:    map[string]uint64{},
		flows:    dataplane.FlowCounts{},
	}
}

// maxServices is the number of services at once.
const maxServices = 4096

// Limits returns the limits of the data plane: it serves everything, and enough
// backends for any test.
func Limits() dataplane.Limits { return dataplane.Unlimited(4096) }

// Update programs svc; see dataplane.DataPlane.
func (d *Fake) Update(ctx context.Context, svc *lb.Service) (dataplane.Programmed, error) {
	if err := d.begin(ctx, "update", svc.VIP); err != nil {
		return dataplane.Programmed{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	old, exists := d.services[svc.VIP]
	if limits := Limits(); len(svc.Backends) > limits.MaxBackends {
		return dataplane.Programmed{}, fmt.Errorf("vip %s: %d backends: at most %d", svc.VIP, len(svc.Backends), limits.MaxBackends)
	} else if !exists && len(d.services) >= maxServices {
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
func (d *Fake) program(svc *lb.Service) (*service, error) {
	s := &service{Service: *svc, backends: map[lb.BackendID]dataplane.Traffic{}, choice: newChoice()}
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
func (d *Fake) outOfUse(b lb.Backend) string {
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

// inherit takes over the counters and flows of the service that s replaces.
func (s *service) inherit(old *service) {
	s.total, s.choice = old.total, old.choice
	for id := range s.backends {
		s.backends[id] = old.backends[id]
	}
}

// state returns a copy of the programmed state.
func (s *service) state() dataplane.Programmed {
	p := s.programmed
	p.Backends = slices.Clone(p.Backends)
	return p
}

// Delete forgets vip; see dataplane.DataPlane.
func (d *Fake) Delete(ctx context.Context, vip lb.VIP) error {
	if err := d.begin(ctx, "delete", vip); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.services, vip)
	return nil
}

// Prune forgets all services but those in keep; see dataplane.DataPlane.
func (d *Fake) Prune(ctx context.Context, keep []lb.VIP) error {
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
func (d *Fake) Stale() <-chan lb.VIP { return d.stale.Out() }

// Close ends the delivery of stale VIPs. It is called once.
func (d *Fake) Close() error {
	d.stale.Close()
	return nil
}

// begin records a call and says whether it is to fail.
func (d *Fake) begin(ctx context.Context, op string, vip lb.VIP) error {
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

// SetUnusable makes a backend unusable for the given reason, from the next
// Update on; an empty reason makes it usable again. Like a next hop that
// changes, it should be followed by MarkStale of the services that it concerns.
func (d *Fake) SetUnusable(id lb.BackendID, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unusable[id] = reason
}

// MarkStale announces vip on the channel of Stale.
func (d *Fake) MarkStale(vip lb.VIP) { d.stale.Add(vip) }

// Calls returns the calls since the last call of Calls, in their order, for
// example "update tcp 10.1.1.1:80", with ": failed" behind those that the test
// let fail.
func (d *Fake) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

// Dump prints the programmed services by VIP, a line each, and indented below
// it a line for each of its backends by ID:
//
//	tcp 10.1.1.1:80 web l2dsr flow ring 251
//	  10.0.0.21:80 weight 1 entries 251
//	  10.0.0.22:80 weight 1 out: no route
func (d *Fake) Dump() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out strings.Builder
	for _, vip := range slices.SortedFunc(maps.Keys(d.services), lb.VIP.Compare) {
		d.services[vip].dump(&out)
	}
	return out.String()
}

func (s *service) dump(out *strings.Builder) {
	fmt.Fprintf(out, "%s %s %s %s ring %d\n", s.VIP, s.Name, s.Forward, s.Affinity, s.programmed.RingSize)
	weights := map[lb.BackendID]int{}
	for _, b := range s.Backends {
		weights[b.ID()] = b.Weight
	}
	byID := func(a, b dataplane.BackendState) int {
		return a.ID.Compare(b.ID)
	}
	for _, b := range slices.SortedFunc(slices.Values(s.programmed.Backends), byID) {
		use := fmt.Sprintf("entries %d", b.RingEntries)
		if !b.InUse {
			use = "out: " + b.Reason
		}
		fmt.Fprintf(out, "  %s weight %d %s\n", b.ID, weights[b.ID], use)
	}
}

// FrameSize is the number of bytes that Probe counts for a packet.
const FrameSize = 64

// Probe balances one packet from client to vip and counts it. It returns the
// backend that gets it, or false if the packet is none of the data plane's,
// the client is denied or limited, or no backend is in use.
func (d *Fake) Probe(vip lb.VIP, client netip.AddrPort) (lb.BackendID, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, exists := d.services[vip]
	switch {
	case !exists:
		d.exits["pass"]++
		return lb.BackendID{}, false
	case !Allows(s.Sources, client.Addr()):
		d.exits["source_denied"]++
		return lb.BackendID{}, false
	case len(s.ring) == 0:
		d.exits["no_backend"]++
		return lb.BackendID{}, false
	case !s.admits(client.Addr()):
		d.exits["limited"]++
		return lb.BackendID{}, false
	}
	d.exits["forward"]++
	id := s.like(d.leader(s).choose(client))
	packet := dataplane.Traffic{Packets: 1, Bytes: FrameSize}
	s.total = s.total.Add(packet)
	s.backends[id] = s.backends[id].Add(packet)
	return id, true
}

// Allows reports whether a client of the VIP's family may use a service with these
// sources.
func Allows(s lb.Sources, client netip.Addr) bool {
	allowed, length := len(s.Allow) == 0, -1
	for _, p := range s.Allow {
		if p.Contains(client) && p.Bits() > length {
			allowed, length = true, p.Bits()
		}
	}
	for _, p := range s.Deny {
		if p.Contains(client) && p.Bits() >= length {
			allowed, length = false, p.Bits()
		}
	}
	return allowed
}

// SetFlows says how many live flows a backend of a service has recorded.
func (d *Fake) SetFlows(vip lb.VIP, id lb.BackendID, count int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flows[vip] == nil {
		d.flows[vip] = map[lb.BackendID]int{}
	}
	d.flows[vip][id] = count
}

// CountFlows returns the counts set by SetFlows.
func (d *Fake) CountFlows(ctx context.Context) (dataplane.FlowCounts, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := dataplane.FlowCounts{}
	for vip, backends := range d.flows {
		counts[vip] = maps.Clone(backends)
	}
	return counts, ctx.Err()
}

// Stats returns the counters that Probe moves.
func (d *Fake) Stats(ctx context.Context) (dataplane.Stats, error) {
	if err := ctx.Err(); err != nil {
		return dataplane.Stats{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	stats := dataplane.Stats{Exits: maps.Clone(d.exits), Services: map[lb.VIP]dataplane.ServiceStats{}}
	for vip := range d.services {
		stats.Services[vip] = d.stats(vip)
	}
	return stats, nil
}

// Has reports whether the data plane has a service.
func (d *Fake) Has(vip lb.VIP) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.services[vip] != nil
}

func (d *Fake) stats(vip lb.VIP) dataplane.ServiceStats {
	s := d.services[vip]
	service := dataplane.ServiceStats{Traffic: s.total}
	for _, id := range slices.SortedFunc(maps.Keys(s.backends), lb.BackendID.Compare) {
		service.Backends = append(service.Backends, lb.Backend{Address: id.Addr(), Port: id.Port()})
		service.Shares = append(service.Shares, s.backends[id])
	}
	return service
}
