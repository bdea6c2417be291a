// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// Trace runs a packet through a second instance of the program and returns the
// verdict. Packets, counters and flows of the live one are not touched.
func (p *Plane) Trace(ctx context.Context, packet dataplane.Packet) (dataplane.Trace, error) {
	p.loader.mu.Lock() // the program in use stays
	defer p.loader.mu.Unlock()
	if err := p.loader.ready(ctx); err != nil {
		return dataplane.Trace{}, err
	}
	if err := p.programs.RefreshTracer(); err != nil {
		return dataplane.Trace{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return dataplane.Trace{}, err
	}
	t, err := p.programs.Trace(packet.Frame, packet.Interface)
	if err != nil {
		return dataplane.Trace{}, err
	}
	return p.explain(t)
}

// explain puts a run into the words of dataplane. The service is as it was when
// the packet met it: mu is held.
func (c *catalog) explain(t program.Traced) (dataplane.Trace, error) {
	out := dataplane.Trace{Exit: t.Exit, Verdict: verdictName(t.Verdict), Frame: t.Frame}
	if t.Has(table.BalancerTraceStepTRACE_PACKET) {
		out.Length = int(t.Length)
		switch vip := table.VIPOf(t.Vip); vip.Protocol {
		case lb.TCP, lb.UDP:
			out.VIP = vip
			out.Client = netip.AddrPortFrom(table.Unmapped(t.Source), table.WirePort(t.SourcePort))
		}
	}
	out.Found = t.Has(table.BalancerTraceStepTRACE_SERVICE)
	s := c.services[out.VIP]
	if s == nil || !t.Has(table.BalancerTraceStepTRACE_RING|table.BalancerTraceStepTRACE_SERVER|table.BalancerTraceStepTRACE_HIT) {
		return out, nil
	}
	if t.Has(table.BalancerTraceStepTRACE_RING) {
		out.Ring = s.traceRing(t)
	}
	out.Backend = s.traceBackend(t)
	flow, err := s.traceFlow(t)
	out.Flow = flow
	return out, err
}

func (s *service) traceRing(t program.Traced) *dataplane.TraceRing {
	ring := &dataplane.TraceRing{
		Place:    int(t.Place),
		Size:     int(t.View.RingSize),
		Backend:  s.backendIn(t.RingSlot),
		Unstable: t.Has(table.BalancerTraceStepTRACE_UNSTABLE),
	}
	if t.Has(table.BalancerTraceStepTRACE_PREVIOUS) {
		ring.Previous = s.backendIn(t.PreviousSlot)
	}
	return ring
}

func (s *service) traceFlow(t program.Traced) (*dataplane.TraceFlow, error) {
	flow := &dataplane.TraceFlow{
		Phase:   phaseName(table.BalancerPhase(t.Phase)),
		Tracked: t.Has(table.BalancerTraceStepTRACE_TRACKED),
		Hit:     t.Has(table.BalancerTraceStepTRACE_HIT),
		Named:   t.Has(table.BalancerTraceStepTRACE_SERVER),
		Client:  t.Has(table.BalancerTraceStepTRACE_CLIENT),
	}
	if !t.Has(table.BalancerTraceStepTRACE_RECORD) || t.Flow.Service != t.Service {
		return flow, nil
	}
	now, err := table.FlowClock()
	flow.Recorded = s.now.recorded(t.Flow.Backend)
	flow.Age = table.FlowAge(now, t.Flow.Seen)
	return flow, err
}

func (s *service) traceBackend(t program.Traced) *dataplane.TraceBackend {
	one := slotAt(s.now.slots, t.Slot)
	if one == nil {
		return nil
	}
	mode := one.mode()
	b := &dataplane.TraceBackend{ID: one.id(), NextHop: one.hop().String(), Forward: mode, MTU: one.pathMTU()}
	if one.has(table.BalancerBackendFlagBACKEND_LOCAL) {
		b.NextHop = thisNode
		return b
	}
	if mode != lb.L2DSR && !one.has(table.BalancerBackendFlagBACKEND_RELAY) {
		b.Remote = table.Unmapped(one.Remote)
	}
	if b.Remote.IsValid() && !one.has(table.BalancerBackendFlagBACKEND_KEEP_SOURCE) {
		b.Local = table.Unmapped(one.Local)
	}
	if overlay := mode.Overlay(); overlay != lb.SegmentUnset {
		b.Segment = lb.Segment{Type: overlay, ID: one.Detail.Segment}
	}
	return b
}

// backendIn names the backend of a slot; the zero ID if the slot is none.
func (s *service) backendIn(number uint32) lb.BackendID {
	if one := slotAt(s.now.slots, number); one != nil {
		return one.id()
	}
	return lb.BackendID{}
}

// recorded names the backend of a flow record; the zero ID if packets are no
// longer sent there (recorded_backend in bpf/pick/flow.h).
func (v *version) recorded(backend uint32) lb.BackendID {
	if one := named(v.slots, backend); one != nil && one.usable() {
		return one.id()
	}
	return lb.BackendID{}
}

func phaseName(phase table.BalancerPhase) dataplane.Phase {
	return cmp.Or(map[table.BalancerPhase]dataplane.Phase{
		table.BalancerPhasePHASE_OPENING:  dataplane.PhaseOpening,
		table.BalancerPhasePHASE_DATAGRAM: dataplane.PhaseDatagram,
	}[phase], dataplane.PhaseOpen)
}

// Verdicts of an XDP program (enum xdp_action in linux/bpf.h).
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)

// verdictName is a verdict's name in a dataplane.Trace.
func verdictName(verdict uint32) string {
	names := map[uint32]string{xdpDrop: "drop", xdpPass: "pass", xdpTX: "transmit", xdpRedirect: "redirect"}
	return cmp.Or(names[verdict], fmt.Sprintf("verdict %d", verdict))
}
