// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fuzzrand"
)

func trace(t *testing.T, p *xdp.Unattached, frame []byte) dataplane.Trace {
	t.Helper()
	programOf(t, p)
	out, err := p.Trace(context.Background(), dataplane.Packet{Frame: frame})
	if err != nil {
		t.Fatalf("% x: %v", frame, err)
	}
	return out
}

// records are the flow table's.
func records(t *testing.T, p *xdp.Unattached) map[uint64]table.BalancerFlow {
	t.Helper()
	all := map[uint64]table.BalancerFlow{}
	must(t, p.Tables.EachFlow(func(key uint64, flow *table.BalancerFlow) { all[key] = *flow }))
	return all
}

// open is a packet of a connection that an earlier one opened.
func open(vip lb.VIP, client netip.AddrPort) []byte {
	f := clientFrame(vip, client)
	tcp := f.ip[1].(*layers.TCP)
	tcp.SYN, tcp.ACK = false, true
	return f.build()
}

// randomPackets returns a source of packets for the VIPs, some of them damaged.
func randomPackets(random *rand.Rand, vips ...lb.VIP) func() []byte {
	return func() []byte {
		vip := vips[random.IntN(len(vips))]
		client := clientOf(vip.Address, random.IntN(64))
		frame := flowPacket(vip, client)
		if vip.Protocol == lb.TCP && random.IntN(2) == 0 {
			frame = open(vip, client)
		}
		if random.IntN(3) > 0 {
			return frame
		}
		for range random.IntN(4) {
			frame[random.IntN(len(frame))] = byte(random.Uint32())
		}
		return frame[:max(ethernetHeader, random.IntN(len(frame)))]
	}
}

// A trace equals the live program's result: exit, verdict and every byte.
// The live program's counters and flows don't move.
func TestTraceOfRandomPackets(t *testing.T) {
	p, _ := newTestPlane(t)
	stable, tracked, tunnel := manyBackends(vip4, 5), manyBackends(vip4, 5), manyBackends(vip6, 5)
	tracked.Port, tracked.Tracking = 81, lb.TrackingFull
	tunnel.Forward = lb.IPIP
	empty := manyBackends(vip4, 0)
	empty.Port = 82
	datagrams := manyBackends(vip4, 5)
	datagrams.Protocol = lb.UDP
	services := []*lb.Service{stable, tracked, tunnel, datagrams, empty}
	vips := []lb.VIP{{Address: vip4, Port: 83, Protocol: lb.TCP}}
	for _, svc := range services {
		update(t, p, svc)
		vips = append(vips, svc.VIP)
	}
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	packet := randomPackets(random, vips...)
	for i := range repeated(2000) {
		if i%500 == 250 { // entries become unstable
			for _, svc := range services[:4] {
				svc.Backends = svc.Backends[1:]
				update(t, p, svc)
			}
		}
		in := packet()
		flows := records(t, p)
		var said dataplane.Trace
		moved := exits(t, p, func() { said = trace(t, p, in) })
		if after := records(t, p); len(moved) > 0 || !maps.Equal(flows, after) {
			t.Fatalf("packet %d, % x: a trace moved the live counters %v or flows\n%v to\n%v", i, in, moved, flows, after)
		}
		var verdict uint32
		var out []byte
		moved = exits(t, p, func() { verdict, out = run(t, p, in) })
		if moved[said.Exit] != 1 || said.Verdict != verdicts[verdict] || !bytes.Equal(said.Frame, out) {
			t.Fatalf("packet %d, % x:\nsaid %+v,\nbut verdict %s with counters %v and % x",
				i, in, said, verdicts[verdict], moved, out)
		}
		checkSent(t, said, out)
	}
}

// checkSent compares the backend of a trace with the one that the live program
// sent the frame to.
func checkSent(t *testing.T, said dataplane.Trace, out []byte) {
	t.Helper()
	if !strings.HasPrefix(said.Exit, "forward_") {
		return
	}
	if !said.Found || said.Backend == nil || lb.MAC(out[:6]) != macOf(said.Backend.ID.Addr()) {
		t.Fatalf("%+v, to %+v: but sent to % x", said, said.Backend, out[:6])
	}
}

// checkTrace compares a trace with the result of a packet.
func checkTrace(t *testing.T, said dataplane.Trace, c forwardCase) {
	t.Helper()
	svc := c.service()
	want := &dataplane.TraceBackend{ID: svc.Backends[0].ID(), NextHop: said.Backend.NextHop, Forward: c.forward, MTU: 1500}
	if c.forward != lb.L2DSR {
		want.Local, want.Remote = local6, c.backend
		if c.backend.Is4() {
			want.Local = local4
		}
	}
	if c.forward.Overlay() != lb.SegmentUnset {
		want.Segment = svc.SegmentOf(svc.Backends[0])
	}
	if diff := cmp.Diff(want, said.Backend, exactly, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("the trace's backend: %s", diff)
	}
	if !strings.Contains(want.NextHop, macOf(c.backend).String()) {
		t.Errorf("the trace's next hop is %s", want.NextHop)
	}
	if exit := "forward_" + c.forward.String(); said.Exit != exit || said.Client != c.client() ||
		said.VIP != svc.VIP || !bytes.Equal(said.Frame, c.want()) {
		t.Errorf("the trace says %+v", said)
	}
}

// The life of a connection around a change of backends, as traces show it.
func TestTraceFlow(t *testing.T) {
	p, _ := newTestPlane(t)
	svc := manyBackends(vip4, 8)
	update(t, p, svc)
	client := client4
	before := trace(t, p, open(svc.VIP, client))
	if before.Ring.Unstable || before.Flow.Tracked || before.Backend.ID != before.Ring.Backend || before.Client != client || before.VIP != svc.VIP {
		t.Fatalf("steady state: %+v, ring %+v, flow %+v", before, before.Ring, before.Flow)
	}
	old := before.Backend.ID

	// The client's backend is drained: its entries become unstable.
	for i := range svc.Backends {
		if svc.Backends[i].ID() == old {
			svc.Backends[i].Weight = 0
		}
	}
	update(t, p, svc)
	now := trace(t, p, flowPacket(svc.VIP, client)).Backend.ID
	ring := dataplane.TraceRing{Place: before.Ring.Place, Size: before.Ring.Size, Backend: now, Unstable: true, Previous: old}
	ask := func(when string, frame []byte, backend lb.BackendID, flow dataplane.TraceFlow) {
		t.Helper()
		got := trace(t, p, frame)
		got.Flow.Age = 0
		if diff := cmp.Diff(ring, *got.Ring, exactly); diff != "" {
			t.Errorf("%s: ring %s", when, diff)
		}
		if diff := cmp.Diff(flow, *got.Flow, exactly); diff != "" || got.Backend.ID != backend {
			t.Errorf("%s: backend %s, want %s; flow %s", when, got.Backend.ID, backend, diff)
		}
	}
	syn, ack := flowPacket(svc.VIP, client), open(svc.VIP, client)
	ask("a new connection", syn, now, dataplane.TraceFlow{Phase: dataplane.PhaseOpening, Tracked: true})
	ask("an older connection", ack, old, dataplane.TraceFlow{Phase: dataplane.PhaseOpen, Tracked: true})
	run(t, p, ack)
	ask("its next packet", ack, old, dataplane.TraceFlow{Phase: dataplane.PhaseOpen, Tracked: true, Hit: true, Recorded: old})
	ask("a new one of its ports", syn, now, dataplane.TraceFlow{Phase: dataplane.PhaseOpening, Tracked: true, Recorded: old})
}

var exactly = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

// Steps that a packet doesn't reach are missing, and an invalid query is an error.
func TestTraceEnds(t *testing.T) {
	p, _ := newTestPlane(t)
	empty := manyBackends(vip4, 0)
	update(t, p, empty)
	other := empty.VIP
	other.Port = 81
	for _, c := range []struct {
		frame []byte
		vip   lb.VIP
		found bool
		exit  string
	}{
		{withTags(1, 2), lb.VIP{}, false, "pass_vlan_stacked"},
		{flowPacket(other, client4), other, false, "pass_not_vip"},
		{flowPacket(empty.VIP, client4), empty.VIP, true, "drop_no_backend"},
	} {
		if got := trace(t, p, c.frame); got.VIP != c.vip || got.Found != c.found || got.Ring != nil || got.Exit != c.exit {
			t.Errorf("%+v, want VIP %s, exit %s", got, c.vip, c.exit)
		}
	}
	for _, packet := range []dataplane.Packet{
		{Frame: make([]byte, 13)},
		{Frame: make([]byte, program.MaxFrame+1)},
		{Frame: make([]byte, 60), Interface: "nosuch"},
	} {
		if got, err := p.Trace(context.Background(), packet); err == nil {
			t.Errorf("%d bytes through %q: exit %s, want an error", len(packet.Frame), packet.Interface, got.Exit)
		}
	}
}

// A packet's interface decides whether its frame goes back through it.
func TestTraceInterface(t *testing.T) {
	p, hops := newTestPlane(t)
	hops.index = testIndex + 1
	svc := manyBackends(vip4, 3)
	update(t, p, svc)
	in := flowPacket(svc.VIP, client4)
	trace(t, p, in)
	got, err := p.Trace(context.Background(), dataplane.Packet{Frame: in, Interface: "lo"})
	if err != nil || got.Verdict != "redirect" {
		t.Errorf("out of another interface: %+v, %v, want redirect", got, err)
	}
}

// Every exit of the program has a text.
func TestExitsHaveText(t *testing.T) {
	p, _ := newTestPlane(t)
	counts, err := p.Programs.Exits()
	must(t, err)
	for exit := range counts {
		if dataplane.ExitText(exit) == strings.ReplaceAll(exit, "_", " ") {
			t.Errorf("no text for the exit %s", exit)
		}
	}
}

// A trace has the length of the IP packet.
func TestTraceLength(t *testing.T) {
	p, _ := newTestPlane(t)
	for vip, client := range map[netip.Addr]netip.AddrPort{vip4: client4, vip6: client6} {
		svc := manyBackends(vip, 1)
		update(t, p, svc)
		in := clientFrame(svc.VIP, client).build()
		if got := trace(t, p, in).Length; got != len(in)-ethernetHeader {
			t.Errorf("%s: length %d, want %d", vip, got, len(in)-ethernetHeader)
		}
	}
}
