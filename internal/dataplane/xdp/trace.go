// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Trace runs a packet through a second instance of the program and tells what it
// decided. Packets, counters and flows of the live one are not touched.
func (p *Plane) Trace(ctx context.Context, packet dataplane.Packet) (dataplane.Trace, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return dataplane.Trace{}, err
	}
	ifindex, err := p.ingress(packet.Interface)
	if err != nil {
		return dataplane.Trace{}, err
	}
	if err := p.refreshTracer(); err != nil {
		return dataplane.Trace{}, err
	}
	t, err := p.tracer.run(packet.Frame, ifindex)
	if err != nil {
		return dataplane.Trace{}, err
	}
	return p.explain(t)
}

// refreshTracer loads the tracer at the first trace, and again when another
// program is live.
func (p *Plane) refreshTracer() error {
	if p.kernel.program == nil {
		return errors.New("no packet is balanced yet: the first services are being programmed")
	}
	if p.tracer != nil && p.tracer.live == p.kernel.program {
		return nil
	}
	next, err := loadTracer(p.kernel)
	if err != nil {
		return err
	}
	last := p.tracer
	p.tracer = next
	return last.close()
}

// loopback is the index of every network namespace's first interface.
const loopback = 1

// ingress is the index of the interface by which a packet comes in.
func (p *Plane) ingress(name string) (int, error) {
	if name == "" && len(p.attachments) > 0 {
		name = p.attachments[0].Interface
	}
	if name == "" {
		return loopback, nil
	}
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return dev.Index, nil
}

// has reports whether a packet took the step, or one of several.
func (t *traced) has(step balancerTraceStep) bool { return balancerTraceStep(t.Steps)&step != 0 }

// explain puts a run into the words of dataplane. The service is as it was when
// the packet met it: p.mu is held.
func (p *Plane) explain(t traced) (dataplane.Trace, error) {
	out := dataplane.Trace{Exit: t.exit, Verdict: verdictName(t.verdict), Frame: t.frame}
	if t.has(balancerTraceStepTRACE_PACKET) {
		out.Length = int(t.Length)
		switch vip := vipOf(t.Vip); vip.Protocol {
		case lb.TCP, lb.UDP:
			out.VIP = vip
			out.Client = netip.AddrPortFrom(unmapped(t.Source), wirePort(t.SourcePort))
		}
	}
	out.Found = t.has(balancerTraceStepTRACE_SERVICE)
	s := p.services[out.VIP]
	if s == nil || !t.has(balancerTraceStepTRACE_RING|balancerTraceStepTRACE_SERVER|balancerTraceStepTRACE_HIT) {
		return out, nil
	}
	if t.has(balancerTraceStepTRACE_RING) {
		out.Ring = s.traceRing(t)
	}
	out.Backend = s.traceBackend(t)
	flow, err := s.traceFlow(t)
	out.Flow = flow
	return out, err
}

func (s *service) traceRing(t traced) *dataplane.TraceRing {
	ring := &dataplane.TraceRing{
		Place:    int(t.Place),
		Size:     int(t.View.RingSize),
		Backend:  s.backendIn(t.RingSlot),
		Unstable: t.has(balancerTraceStepTRACE_UNSTABLE),
	}
	if t.has(balancerTraceStepTRACE_PREVIOUS) {
		ring.Previous = s.backendIn(t.PreviousSlot)
	}
	return ring
}

func (s *service) traceFlow(t traced) (*dataplane.TraceFlow, error) {
	flow := &dataplane.TraceFlow{
		Phase:   phaseName(balancerPhase(t.Phase)),
		Tracked: t.has(balancerTraceStepTRACE_TRACKED),
		Hit:     t.has(balancerTraceStepTRACE_HIT),
		Named:   t.has(balancerTraceStepTRACE_SERVER),
		Client:  t.has(balancerTraceStepTRACE_CLIENT),
	}
	if !t.has(balancerTraceStepTRACE_RECORD) || t.Flow.Service != t.Service {
		return flow, nil
	}
	now, err := flowClock()
	flow.Recorded = s.recorded(t.Flow.Backend)
	flow.Age = flowAge(now, t.Flow.Seen)
	return flow, err
}

func (s *service) traceBackend(t traced) *dataplane.TraceBackend {
	if int(t.Slot) >= len(s.now.slots) || !s.now.slots[t.Slot].taken() {
		return nil
	}
	one := &s.now.slots[t.Slot]
	var mode lb.Forward // unknown, if another release wrote it
	if known := forwards(); int(one.Forward) < len(known) {
		mode = known[one.Forward]
	}
	b := &dataplane.TraceBackend{ID: one.id(), NextHop: one.hop().String(), Forward: mode, MTU: int(one.Mtu)}
	if one.has(balancerBackendFlagBACKEND_SELF) {
		b.NextHop = thisNode
		return b
	}
	if mode != lb.L2DSR && !one.has(balancerBackendFlagBACKEND_RELAY) {
		b.Remote = unmapped(one.Remote)
	}
	if b.Remote.IsValid() && !one.has(balancerBackendFlagBACKEND_OWN) {
		b.Local = unmapped(one.Local)
	}
	if overlay := mode.Overlay(); overlay != lb.SegmentUnset {
		b.Segment = lb.Segment{Type: overlay, ID: one.detail.Segment}
	}
	return b
}

// backendIn names the backend of a slot; the zero ID if the slot is none.
func (s *service) backendIn(number uint32) lb.BackendID {
	if int(number) >= len(s.now.slots) || !s.now.slots[number].taken() {
		return lb.BackendID{}
	}
	return s.now.slots[number].id()
}

// recorded names the backend of a flow record; the zero ID if packets are no
// longer sent there (recorded_backend in bpf/flow.h).
func (s *service) recorded(backend uint32) lb.BackendID {
	number := backend & 0xffff
	if int(number) >= len(s.now.slots) {
		return lb.BackendID{}
	}
	one := &s.now.slots[number]
	if !one.usable() || one.record(uint16(number)) != backend {
		return lb.BackendID{}
	}
	return one.id()
}

func phaseName(phase balancerPhase) dataplane.Phase {
	switch phase {
	case balancerPhasePHASE_OPENING:
		return dataplane.PhaseOpening
	case balancerPhasePHASE_DATAGRAM:
		return dataplane.PhaseDatagram
	default:
		return dataplane.PhaseOpen
	}
}
