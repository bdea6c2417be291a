// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/nexthop"
)

// tracer is a second instance of the program that runs on described packets. It
// reads the live tables and has counters of its own, and its constant "tracing"
// keeps it from writing shared tables (bpf/pick/trace.h).
type tracer struct {
	objects tracerObjects
	exits   Counters
	// live is the program that it was loaded like.
	live *ebpf.Program
}

type tracerObjects struct {
	Balance  *ebpf.Program `ebpf:"balance"`
	Counters *ebpf.Map     `ebpf:"counters"`
	Traces   *ebpf.Map     `ebpf:"traces"`
}

// sharedWithTracer are the tables that a trace has to see as they are.
func sharedWithTracer() []string {
	return []string{
		table.BalancerMapVips, table.BalancerMapTunnelEnds, table.BalancerMapTunnelPeers, table.BalancerMapServices, table.BalancerMapRings,
		table.BalancerMapBackends, table.BalancerMapEgress, table.BalancerMapRemotes, table.BalancerMapBackendDetails, table.BalancerMapNewFlowsBefore, table.BalancerMapFlows, table.BalancerMapFlowsPending,
		table.BalancerMapSources, table.BalancerMapServers, table.BalancerMapAddresses, table.BalancerMapPeers, table.BalancerMapFragments,
		table.BalancerMapNatSessions, table.BalancerMapNatPending, table.BalancerMapAggregates, table.BalancerMapSecrets, table.BalancerMapClients, table.BalancerMapClientIdle, table.BalancerMapServiceDetails, table.BalancerMapNatAddresses, table.BalancerMapNatRefusals,
	}
}

// tracerOwn are the tables that a trace writes, with their size: all that is
// read of them is the exit. A look-up beyond a table's end finds nothing, and
// then nothing is counted.
func tracerOwn(exits uint32) map[string]uint32 {
	return map[string]uint32{
		table.BalancerMapCounters: exits, table.BalancerMapTraces: 1, table.BalancerMapBackendStats: 1, table.BalancerMapNewFlows: 1, table.BalancerMapFlowStats: 1,
		table.BalancerMapLimitSources: 1, table.BalancerMapLimitFlows: 1, table.BalancerMapRates: 1, table.BalancerMapLookups: 1, table.BalancerMapMtuAnswers: 1,
		table.BalancerMapNatFresh: 1, table.BalancerMapNatOneWay: 1,
	}
}

// loadTracer loads the twin of the live program: the same features, the same
// tables.
func (s *Set) loadTracer() (*tracer, error) {
	spec, err := s.specification(s.Features)
	if err != nil {
		return nil, err
	}
	if err := SetConstants(spec, map[string]any{table.BalancerVarTracing: uint8(1)}); err != nil {
		return nil, err
	}
	shared, err := table.Use(s.config.Tables.ByName, spec)
	if err != nil {
		return nil, err
	}
	inlineConstants(spec)
	for name, size := range tracerOwn(spec.Maps[table.BalancerMapCounters].MaxEntries) {
		spec.Maps[name].MaxEntries = size
	}
	options := ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{}}
	for _, name := range sharedWithTracer() {
		options.MapReplacements[name] = shared.MapReplacements[name]
	}
	t := &tracer{live: s.program}
	if err := spec.LoadAndAssign(&t.objects, &options); err != nil {
		return nil, fmt.Errorf("program for tracing: %w", err)
	}
	if t.exits, err = NewCounters(spec.Types, "counter", "COUNTER_", t.objects.Counters); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tracer) close() error {
	if t == nil {
		return nil
	}
	return errors.Join(t.objects.Balance.Close(), t.objects.Counters.Close(), t.objects.Traces.Close())
}

// Traced is a run of the program on one packet: the program's notes, its verdict,
// the exit that it counted, and the frame as it leaves the program.
type Traced struct {
	table.BalancerTrace
	Verdict uint32
	Exit    string
	Frame   []byte
}

// Has reports whether the packet took the step, or one of several.
func (t *Traced) Has(step table.BalancerTraceStep) bool {
	return table.BalancerTraceStep(t.Steps)&step != 0
}

// Trace runs a second instance of the program in use on a frame as if it came in
// by an interface; empty is the first one to which the program is attached.
func (s *Set) Trace(frame []byte, in string) (Traced, error) {
	ifindex, err := s.ingress(in)
	if err != nil {
		return Traced{}, err
	}
	return s.tracer.run(frame, ifindex)
}

// RefreshTracer loads the program for Trace, at first and when another program is in use.
// It may be called together with any method but Use, Trace and Close.
func (s *Set) RefreshTracer() error {
	if s.program == nil {
		return errors.New("no packet is balanced yet: the first services are being programmed")
	}
	if s.tracer != nil && s.tracer.live == s.program {
		return nil
	}
	next, err := s.loadTracer()
	if err != nil {
		return err
	}
	last := s.tracer
	s.tracer = next
	return last.close()
}

// ingress is the index of the interface by which a packet comes in.
func (s *Set) ingress(name string) (int, error) {
	if name == "" && len(s.attachments) > 0 {
		name = s.attachments[0].Interface
	}
	if name == "" {
		return nexthop.Loopback, nil
	}
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return dev.Index, nil
}

// maxGrowth is more than any encapsulation adds to a frame, in bytes.
const maxGrowth = 256

// Sizes that the kernel runs a program on: at least an Ethernet header, and at most
// the rest of a page of 4096 bytes, of which the kernel uses 576. Longer frames are
// in pieces of which the program, as on an interface, sees the first only.
const (
	ethernetHeader = 14
	MaxFrame       = 3520
)

// run puts a frame into the program as if it came in by an interface.
func (t *tracer) run(frame []byte, ifindex int) (Traced, error) {
	if len(frame) < ethernetHeader {
		return Traced{}, fmt.Errorf("frame of %d bytes: shorter than an Ethernet header", len(frame))
	}
	if len(frame) > MaxFrame {
		return Traced{}, fmt.Errorf("frame of %d bytes: larger than the %d that a program sees at once; was it captured with receive offload (GRO)?", len(frame), MaxFrame)
	}
	if err := t.objects.Traces.Put(uint32(0), table.BalancerTrace{}); err != nil {
		return Traced{}, fmt.Errorf("trace: %w", err)
	}
	before, err := t.exits.Read()
	if err != nil {
		return Traced{}, err
	}
	out := Traced{}
	options := ebpf.RunOptions{
		Data:    frame,
		DataOut: make([]byte, len(frame)+maxGrowth),
		Context: table.BalancerXdpMd{DataEnd: uint32(len(frame)), IngressIfindex: uint32(ifindex)},
	}
	if out.Verdict, err = t.objects.Balance.Run(&options); err != nil {
		return Traced{}, fmt.Errorf("frame of %d bytes: %w", len(frame), err)
	}
	out.Frame = options.DataOut
	after, err := t.exits.Read()
	if err != nil {
		return Traced{}, err
	}
	for name, count := range after {
		if count != before[name] {
			out.Exit = name
		}
	}
	if err := t.objects.Traces.Lookup(uint32(0), &out.BalancerTrace); err != nil {
		return Traced{}, fmt.Errorf("trace: %w", err)
	}
	return out, nil
}
