// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/test/golden"
)

var (
	id1 = netip.MustParseAddrPort("10.0.0.21:80")
	id2 = netip.MustParseAddrPort("10.0.0.22:80")
)

// traceCases are packets of every kind, as an operator reads of them.
func traceCases() map[string]observe.Trace {
	backend := func(id lb.BackendID, mode lb.Forward) *dataplane.TraceBackend {
		b := &dataplane.TraceBackend{ID: id, NextHop: "eth0 02:00:00:00:00:01", Forward: mode, MTU: 1500}
		if mode != lb.L2DSR {
			b.Local, b.Remote = netip.MustParseAddr("10.0.0.11"), id.Addr()
		}
		return b
	}
	stable := &dataplane.TraceRing{Place: 17, Size: 1009, Backend: id1}
	unstable := &dataplane.TraceRing{Place: 17, Size: 1009, Backend: id1, Unstable: true, Previous: id2}
	trace := func(exit, verdict string, ring *dataplane.TraceRing, flow dataplane.TraceFlow, b *dataplane.TraceBackend) observe.Trace {
		return observe.Trace{Service: "web", Trace: dataplane.Trace{
			Exit: exit, Verdict: verdict, VIP: web, Found: true, Length: 40, Ring: ring, Flow: &flow, Backend: b,
		}}
	}
	opening := dataplane.TraceFlow{Phase: dataplane.PhaseOpening, Tracked: true}
	again := opening
	again.Recorded = id2
	open := dataplane.TraceFlow{Phase: dataplane.PhaseOpen, Tracked: true}
	hit := dataplane.TraceFlow{Phase: dataplane.PhaseOpen, Tracked: true, Hit: true, Recorded: id2, Age: 3 * time.Second}
	left := dataplane.TraceFlow{Phase: dataplane.PhaseDatagram, Tracked: true, Age: time.Minute}
	big := trace("drop_too_big", "drop", stable, dataplane.TraceFlow{Phase: dataplane.PhaseOpen}, backend(id1, lb.IPIP))
	big.Length = 1500
	segment := trace("forward_vxlan", "transmit", stable, dataplane.TraceFlow{Phase: dataplane.PhaseOpen}, backend(id1, lb.VXLAN))
	segment.Backend.Segment = lb.Segment{Type: lb.SegmentVXLAN, ID: 5001}
	none := trace("drop_no_backend", "drop", nil, dataplane.TraceFlow{}, nil)
	none.Flow = nil
	denied := none
	denied.Exit = "drop_source_denied"
	return map[string]observe.Trace{
		"1 stable":         trace("forward_l2dsr", "transmit", stable, dataplane.TraceFlow{Phase: dataplane.PhaseOpening}, backend(id1, lb.L2DSR)),
		"2 new":            trace("forward_ipip", "redirect", unstable, opening, backend(id1, lb.IPIP)),
		"3 old":            trace("forward_l2dsr", "transmit", unstable, open, backend(id2, lb.L2DSR)),
		"4 recorded":       trace("forward_l2dsr", "transmit", unstable, hit, backend(id2, lb.L2DSR)),
		"5 opened again":   trace("forward_l2dsr", "transmit", unstable, again, backend(id1, lb.L2DSR)),
		"6 backend left":   trace("forward_l2dsr", "transmit", unstable, left, backend(id1, lb.L2DSR)),
		"7 too big":        big,
		"8 no backend":     none,
		"9 drained empty":  trace("drop_no_backend", "drop", &dataplane.TraceRing{Size: 101, Unstable: true}, open, nil),
		"10 not a VIP's":   {Trace: dataplane.Trace{Exit: "pass_not_vip", Verdict: "pass", VIP: dns}},
		"11 arp":           {Trace: dataplane.Trace{Exit: "pass_not_ip", Verdict: "pass"}},
		"12 segment":       segment,
		"13 QUIC":          trace("forward_l2dsr", "transmit", nil, dataplane.TraceFlow{Phase: dataplane.PhaseDatagram, Named: true}, backend(id1, lb.L2DSR)),
		"14 denied":        denied,
		"15 client":        trace("forward_l2dsr", "transmit", stable, dataplane.TraceFlow{Phase: dataplane.PhaseOpening, Tracked: true, Client: true}, backend(id2, lb.L2DSR)),
		"16 NAT client":    trace("forward_nat", "transmit", stable, dataplane.TraceFlow{Phase: dataplane.PhaseOpening, Client: true}, backend(id2, lb.NAT)),
		"17 not traceable": {Error: "frame of 3 bytes: shorter than an Ethernet header"},
	}
}

func TestTraceTable(t *testing.T) {
	text := ""
	cases := traceCases()
	for i := range len(cases) {
		for name, trace := range cases {
			if strings.HasPrefix(name, fmt.Sprintf("%d ", i+1)) {
				if trace.Error == "" {
					trace = observe.Explain(trace.Trace, trace.Service)
				}
				text += observe.FormatTrace(name, trace) + "\n"
			}
		}
	}
	golden.File(t, "testdata/traces.txt", text+observe.FormatTraceSummary(12, map[string]int{"forward_l2dsr": 5, "": 7}))
}

func TestFlowTable(t *testing.T) {
	flow := func(service string, vip lb.VIP, client string, backend lb.BackendID, age time.Duration) observe.Flow {
		return observe.Flow{Service: service, Flow: dataplane.Flow{VIP: vip, Client: netip.MustParseAddrPort(client), Backend: backend, Age: age}}
	}
	flows := observe.Flows{
		Flows: []observe.Flow{
			flow("web", web, "192.0.2.7:41000", id1, 0),
			flow("dns", dns, "[2001:db8::7]:53", netip.MustParseAddrPort("[fd00::21]:53"), 90*time.Second),
			flow("web", web, "192.0.2.8:41000", lb.BackendID{}, time.Hour),
		},
		Matching: 12, Records: 20, Capacity: 262144,
		Tracking: dataplane.Tracking{Unstable: 33, Hits: 100, Misses: 5, Inserts: 25, Evictions: 1},
	}
	golden.File(t, "testdata/flows.txt", observe.FormatFlows(flows))
}

func TestTopTable(t *testing.T) {
	rate := observe.Rate{PacketsPerSecond: 3.5e6, BytesPerSecond: 1.25e9}
	top := observe.Top{
		Node: "lb1", Time: started, Total: rate,
		Services: []observe.Service{
			{Name: "web", VIP: web, Programmed: true, Backends: 2, BackendsInUse: 2, Rate: rate},
			{Name: "dns", VIP: dns, Backends: 1},
		},
		Backends: []observe.Backend{{Service: "web", Address: id1.Addr(), Port: 80, Share: 0.5, Rate: rate}},
		Exits:    []observe.Exit{{Name: "forward_l2dsr", PacketsPerSecond: 3.5e6}, {Name: "drop_too_big", PacketsPerSecond: 3}},
	}
	golden.File(t, "testdata/top.txt", observe.FormatTop(top))
}
