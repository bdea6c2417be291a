// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
)

// Verdicts of tc programs, of linux/pkt_cls.h.
const (
	tcUnspecified = 0xffffffff // the kernel's
	tcShot        = 2
	tcRedirect    = 7
)

// replies is the program at the devices behind which XDP can't send, on the
// tables of a plane whose sessions it answers.
type replies struct {
	plane   *xdp.Unattached
	program *ebpf.Program
}

func newReplies(t *testing.T) replies {
	t.Helper()
	p, _ := newTestPlane(t)
	must(t, table.GrowSessions(p.Tables))
	program, err := program.LoadReply(program.HandoverConfig{Tables: p.Tables}, 14)
	must(t, err)
	t.Cleanup(func() {
		if err := program.Close(); err != nil {
			t.Error(err)
		}
	})
	return replies{p, program}
}

// begin begins the only session of a case's service.
func (r replies) begin(t *testing.T, c natCase) uint16 {
	t.Helper()
	update(t, r.plane, c.service())
	endAllSessions(t, r.plane)
	return begin(t, r.plane, c)
}

// want puts a frame in, and checks the verdict, the frame that comes out and the
// exact set of counters; no exit means that nothing counts.
func (r replies) want(t *testing.T, in, want []byte, verdict uint32, exit string) {
	t.Helper()
	var got uint32
	out := make([]byte, len(in)+maxGrowth)
	moved := exits(t, r.plane, func() {
		var err error
		options := ebpf.RunOptions{Data: in, DataOut: out}
		got, err = r.program.Run(&options)
		must(t, err)
		out = options.DataOut
	})
	if got != verdict {
		t.Errorf("verdict %d, want %d", got, verdict)
	}
	if !bytes.Equal(out, want) {
		t.Errorf("frame differs:\n%s", cmp.Diff(dump(want), dump(out)))
	}
	counted := map[string]uint64{}
	if exit != "" {
		counted[exit] = 1
	}
	if !maps.Equal(moved, counted) {
		t.Errorf("counters %v, want %v", moved, counted)
	}
}

// Answers, whole and in fragments, and errors are translated as XDP would, to a
// byte.
func TestRepliesAsXDP(t *testing.T) {
	r := newReplies(t)
	for n, c := range natCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			port := r.begin(t, c)
			for _, flags := range []uint8{tcpSYN | tcpACK, tcpACK, tcpACK | tcpPSH, tcpACK | tcpFIN} {
				r.want(t, c.fromServer(flags, port).build(), c.atClient(flags).build(), tcRedirect, "forward_nat_reply")
			}
			for _, m := range errorsOf(c.vip.Address) {
				for _, transport := range []int{8, 18, 0} {
					in, want := c.errorToClient(port, m, transport)
					r.want(t, in.build(), want.build(), tcRedirect, "forward_nat_reply")
				}
			}
			c.payload = string(bytes.Repeat([]byte("fragments"), 150))
			in, want := inFragments(c.fromServer(tcpACK, port), uint32(n), 512), inFragments(c.atClient(tcpACK), uint32(n), 512)
			for i := range in {
				r.want(t, in[i], want[i], tcRedirect, "forward_nat_reply")
			}
		})
	}
}

// The tag of the client's VLAN takes the place of one that a VLAN device has set for the node's own
// route. It is in the buffer's metadata and not in the frame, as a second tag would be.
func TestRepliesWithTag(t *testing.T) {
	r := newReplies(t)
	r.program = behindTag(t, r.program)
	for _, c := range natCases() {
		c.vip.Segment = segment(7)
		port := r.begin(t, c)
		want := c.atClient(tcpACK)
		want.tags = nil
		r.want(t, c.fromServer(tcpACK, port).build(), want.build(), tcRedirect, "forward_nat_reply")
	}
}

// behindTag is a program that sets an 802.1Q tag and continues with another program.
func behindTag(t *testing.T, next *ebpf.Program) *ebpf.Program {
	t.Helper()
	calls, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	must(t, err)
	t.Cleanup(func() { calls.Close() })
	must(t, calls.Put(uint32(0), next))
	const ethernet8021Q, id = 0x0081, 100 // in wire order, and in the host's
	first, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.Mov.Imm(asm.R2, ethernet8021Q),
			asm.Mov.Imm(asm.R3, id),
			asm.FnSkbVlanPush.Call(),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.LoadMapPtr(asm.R2, calls.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, tcShot),
			asm.Return(),
		},
	})
	must(t, err)
	t.Cleanup(func() { first.Close() })
	return first
}

// Replies change a session's state: also here it is established, and closed.
func TestRepliesMoveStates(t *testing.T) {
	r := newReplies(t)
	for _, c := range natCases() {
		port := r.begin(t, c)
		before := states(t, r.plane)
		r.want(t, c.fromServer(tcpSYN|tcpACK, port).build(), c.atClient(tcpSYN|tcpACK).build(), tcRedirect, "forward_nat_reply")
		if after := states(t, r.plane); after == before {
			t.Errorf("%s: states are %v as before", c.vip, after)
		}
	}
}

// Packets of no session pass to the kernel unchanged; packets at their last hop are
// dropped.
func TestRepliesOfNoSession(t *testing.T) {
	r := newReplies(t)
	for _, c := range natCases() {
		port := r.begin(t, c)
		others := map[string][]byte{
			"another port": c.fromServer(tcpACK, port+1).build(),
			"to the VIP":   c.fromClient(tcpACK).build(),
			"a later fragment": func() []byte {
				c.payload = string(bytes.Repeat([]byte("fragments"), 150))
				return inFragments(c.fromServer(tcpACK, port), 9, 512)[1]
			}(),
			"arp": append(bytes.Repeat([]byte{2}, 12), append([]byte{8, 6}, make([]byte, 46)...)...),
		}
		for name, frame := range others {
			t.Run(fmt.Sprintf("%s %s", c.vip, name), func(t *testing.T) {
				r.want(t, frame, frame, tcUnspecified, "")
			})
		}
		last := c.fromServer(tcpACK, port)
		last.ip = flowIP(c.vip.Protocol, c.backend, sessionEnd(c, port), 1, tcpACK)
		r.want(t, last.build(), last.build(), tcShot, "drop_ttl")
	}
}

// sessionEnd is this node's end of a session towards the backend.
func sessionEnd(c natCase, port uint16) netip.AddrPort { return netip.AddrPortFrom(c.snat(), port) }
