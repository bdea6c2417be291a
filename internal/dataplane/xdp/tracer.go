// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/counter"
)

// tracer is a second instance of the program that runs on described packets. It
// reads the live tables and has counters of its own, and its constant "tracing"
// keeps it from writing what it shares (bpf/trace.h).
type tracer struct {
	objects tracerObjects
	exits   counter.Set
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
		balancerMapVips, balancerMapTunnelEnds, balancerMapServices, balancerMapRings,
		balancerMapBackends, balancerMapBackendDetails, balancerMapNewFlowsBefore, balancerMapFlows,
		balancerMapSources, balancerMapServers, balancerMapAddresses, balancerMapMembers, balancerMapFragments,
		balancerMapNatSessions, balancerMapClients, balancerMapClientIdle, balancerMapServiceVips, balancerMapNatAddresses, balancerMapNatRefusals,
	}
}

// tracerOwn are the tables that a trace writes, with their size: all that is
// read of them is the exit. A look-up beyond a table's end finds nothing, and
// then nothing is counted.
func tracerOwn(exits uint32) map[string]uint32 {
	return map[string]uint32{
		balancerMapCounters: exits, balancerMapTraces: 1, balancerMapBackendStats: 1, balancerMapNewFlows: 1, balancerMapFlowStats: 1,
		balancerMapLimitSources: 1, balancerMapLimitFlows: 1, balancerMapAnswerLimits: 1,
		balancerMapNatFresh: 1,
	}
}

// loadTracer loads the twin of the live program: the same features, the same
// tables.
func loadTracer(k *kernel) (*tracer, error) {
	spec, err := k.specification(k.features)
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[balancerVarTracing].Set(uint8(1)); err != nil {
		return nil, fmt.Errorf("constant %s: %w", balancerVarTracing, err)
	}
	for name, size := range tracerOwn(spec.Maps[balancerMapCounters].MaxEntries) {
		spec.Maps[name].MaxEntries = size
	}
	options := ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{}}
	for _, name := range sharedWithTracer() {
		options.MapReplacements[name] = k.shared[name]
	}
	t := &tracer{live: k.program}
	if err := spec.LoadAndAssign(&t.objects, &options); err != nil {
		return nil, fmt.Errorf("program for tracing: %w", err)
	}
	if t.exits, err = counter.New(spec.Types, "counter", "COUNTER_", t.objects.Counters); err != nil {
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

// traced is a run of the program on one packet.
type traced struct {
	balancerTrace
	verdict uint32
	exit    string
	frame   []byte // as it leaves the program
}

// maxGrowth is more than any encapsulation adds to a frame, in bytes.
const maxGrowth = 256

// What the kernel runs a program on: at least an Ethernet header, and at most
// what lies in one page of 4096 bytes with its own 576. Longer frames are in
// pieces of which the program, as on an interface, sees the first only.
const (
	ethernetHeader = 14
	maxFrame       = 3520
)

// run puts a frame into the program as if it came in by an interface.
func (t *tracer) run(frame []byte, ifindex int) (traced, error) {
	if len(frame) < ethernetHeader {
		return traced{}, fmt.Errorf("frame of %d bytes: shorter than an Ethernet header", len(frame))
	}
	if len(frame) > maxFrame {
		return traced{}, fmt.Errorf("frame of %d bytes: larger than the %d that a program sees at once; was it captured with receive offload (GRO)?", len(frame), maxFrame)
	}
	if err := t.objects.Traces.Put(uint32(0), balancerTrace{}); err != nil {
		return traced{}, fmt.Errorf("trace: %w", err)
	}
	before, err := t.exits.Read()
	if err != nil {
		return traced{}, err
	}
	out := traced{}
	options := ebpf.RunOptions{
		Data:    frame,
		DataOut: make([]byte, len(frame)+maxGrowth),
		Context: balancerXdpMd{DataEnd: uint32(len(frame)), IngressIfindex: uint32(ifindex)},
	}
	if out.verdict, err = t.objects.Balance.Run(&options); err != nil {
		return traced{}, fmt.Errorf("frame of %d bytes: %w", len(frame), err)
	}
	out.frame = options.DataOut
	after, err := t.exits.Read()
	if err != nil {
		return traced{}, err
	}
	for name, count := range after {
		if count != before[name] {
			out.exit = name
		}
	}
	if err := t.objects.Traces.Lookup(uint32(0), &out.balancerTrace); err != nil {
		return traced{}, fmt.Errorf("trace: %w", err)
	}
	return out, nil
}
