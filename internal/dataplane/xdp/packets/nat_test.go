// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fuzzrand"
)

// wantFrame runs a frame, and checks the output and the exit.
func wantFrame(t *testing.T, p *xdp.Unattached, in, want frame, verdict uint32, exit string) {
	t.Helper()
	wantBytes(t, p, in.build(), want.build(), verdict, exit)
}

func wantBytes(t *testing.T, p *xdp.Unattached, in, want []byte, verdict uint32, exit string) {
	t.Helper()
	if out := wantVerdict(t, p, in, verdict, exit); !bytes.Equal(out, want) {
		t.Errorf("frame differs:\n%s", cmp.Diff(dump(want), dump(out)))
	}
}

// wantVerdict runs a frame, checks the exit, and returns the output.
func wantVerdict(t *testing.T, p *xdp.Unattached, in []byte, verdict uint32, exit string) []byte {
	t.Helper()
	var got uint32
	var out []byte
	moved := exits(t, p, func() { got, out = run(t, p, in) })
	if got != verdict || !maps.Equal(moved, map[string]uint64{exit: 1}) {
		t.Errorf("verdict %d, counters %v, want %d and %s", got, moved, verdict, exit)
	}
	return out
}

// begin sends the first packet of a session, and returns its port.
func begin(t *testing.T, p *xdp.Unattached, c natCase) uint16 {
	t.Helper()
	var out []byte
	moved := exits(t, p, func() { _, out = run(t, p, c.fromClient(tcpSYN).build()) })
	if want := map[string]uint64{"forward_nat": 1}; !maps.Equal(moved, want) {
		t.Fatalf("counters %v, want %v", moved, want)
	}
	port := sourcePort(t, out)
	if want := c.atServer(tcpSYN, port).build(); !bytes.Equal(out, want) {
		t.Fatalf("frame differs:\n%s", cmp.Diff(dump(want), dump(out)))
	}
	return port
}

// Both directions, families and protocols, with the client's address and the node's, with and
// without VLANs, by one interface or two: the verdict, every byte, the exact set of counters and the
// backend's traffic.
func TestNAT(t *testing.T) {
	p, hops := newTestPlane(t)
	for _, c := range append(natCases(), relayCases()...) {
		for _, tags := range [][2]uint16{{0, 0}, {100, 100}, {100, 200}, {0, 200}, {100, 0}} {
			for _, index := range []int{testIndex, testIndex + 1} {
				c.vip.Segment, c.tagOut, c.index = segment(tags[0]), tags[1], index
				t.Run(fmt.Sprintf("%s vlan %d interface %d", c, c.tagOut, index), func(t *testing.T) {
					hops.index = index
					testSession(t, p, c)
				})
			}
		}
	}
}

func testSession(t *testing.T, p *xdp.Unattached, c natCase) {
	svc := c.service()
	update(t, p, svc)
	defer remove(t, p, svc.VIP)
	endAllSessions(t, p)
	there := uint32(xdpTX)
	if c.index != testIndex {
		there = xdpRedirect
	}
	traced := trace(t, p, c.fromClient(tcpSYN).build())
	if n := len(sessionsOf(t, p)); n != 0 {
		t.Errorf("the trace left %d entries", n)
	}
	port := sourcePort(t, traced.Frame) // the live program will choose it
	if traced.Exit != "forward_nat" || traced.Backend == nil || traced.Backend.ID != c.backend {
		t.Errorf("trace %+v", traced)
	}
	wantFrame(t, p, c.fromClient(tcpSYN), c.atServer(tcpSYN, port), there, "forward_nat")
	wantFrame(t, p, c.fromServer(tcpSYN|tcpACK, port), c.atClient(tcpSYN|tcpACK), xdpTX, "forward_nat_reply")
	for range 2 {
		wantFrame(t, p, c.fromClient(tcpACK), c.atServer(tcpACK, port), there, "forward_nat")
		wantFrame(t, p, c.fromServer(tcpACK|tcpPSH, port), c.atClient(tcpACK|tcpPSH), xdpTX, "forward_nat_reply")
	}
	own := port >= program.DefaultFirstPort && port <= program.DefaultLastPort
	if c.keep && port != c.client.Port() || !c.keep && !own {
		t.Errorf("port %d", port)
	}
	if got := stats(t, p).Services[svc.VIP]; got.Packets != 3 || got.NewFlows != 1 {
		t.Errorf("traffic %+v, want 3 packets and a new flow", got.Traffic)
	}
	again := trace(t, p, c.fromClient(tcpACK).build())
	if again.Flow == nil || !again.Flow.Hit || again.Flow.Recorded != c.backend || again.Backend == nil || again.Backend.Forward != svc.Forward {
		t.Errorf("trace %+v, flow %+v, backend %+v", again, again.Flow, again.Backend)
	}
	if reply := trace(t, p, c.fromServer(tcpACK, port).build()); !bytes.Equal(reply.Frame, c.atClient(tcpACK).build()) {
		t.Errorf("trace of a server's packet: %s", cmp.Diff(dump(c.atClient(tcpACK).build()), dump(reply.Frame)))
	}
}

// Checksums are right whatever the packet holds; and one that is missing stays so.
func TestNATChecksums(t *testing.T) {
	p, _ := newTestPlane(t)
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	for _, c := range natCases() {
		update(t, p, c.service())
		c.payload = "odd"
		port := begin(t, p, c)
		for i := range repeated(2000) {
			payload := make([]byte, 20+random.IntN(200))
			for i := range payload {
				payload[i] = byte(random.Uint32())
			}
			if i%4 == 0 { // sums that are nearly nothing
				clear(payload)
				payload[random.IntN(len(payload))] = byte(random.Uint32())
			}
			c.payload = string(payload)
			wantFrame(t, p, c.fromClient(tcpACK), c.atServer(tcpACK, port), xdpTX, "forward_nat")
			wantFrame(t, p, c.fromServer(tcpACK, port), c.atClient(tcpACK), xdpTX, "forward_nat_reply")
			if t.Failed() {
				t.Fatalf("payload % x", payload)
			}
		}
		if c.vip.Protocol == lb.UDP && c.vip.Address.Is4() {
			in, out := c.fromClient(0).build(), c.atServer(0, port).build()
			copy(in[atIP+20+6:], []byte{0, 0})
			copy(out[atIP+20+6:], []byte{0, 0})
			wantBytes(t, p, in, out, xdpTX, "forward_nat")
		}
		remove(t, p, c.vip)
	}
}
