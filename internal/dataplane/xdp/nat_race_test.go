// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/lb"
)

// The first packets of a flow may come on several processors at once, and one of
// them begins its session: all leave by the same port, and the others' entries
// are gone. Where the server's entry of a session is not the flow's any more, its
// answers would be lost.
func TestNATBegunTwice(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one processor begins one session after the other")
	}
	const flows = 4000 // of which a few in a hundred meet, fewer on a busy machine
	p, _ := newTestPlane(t)
	c := natCaseOf(vip4, lb.UDP)
	update(t, p, c.service())
	split := 0
	for n := range flows {
		c.client = netip.AddrPortFrom(c.client.Addr(), uint16(20000+n))
		first, second := atOnce(t, p, c.fromClient(0).build())
		if sourcePort(t, first) != sourcePort(t, second) {
			split++
		}
	}
	if split > 0 {
		t.Errorf("%d of %d flows left by two ports", split, flows)
	}
	if n := len(sessionsOf(t, p)); n != 2*flows {
		t.Errorf("%d entries, want %d", n, 2*flows)
	}
}

// atOnce puts the same frame in on two processors, as nearly at the same time as
// can be, and returns what comes out.
func atOnce(t *testing.T, p *Plane, in []byte) (first, second []byte) {
	t.Helper()
	program, err := p.Program()
	if err != nil {
		t.Fatal(err)
	}
	var ready atomic.Int32
	var group errgroup.Group
	for _, out := range []*[]byte{&first, &second} {
		options := &ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+256)}
		group.Go(func() error {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Add(1)
			for begun := false; !begun; { // giving way would let one be late
				begun = ready.Load() == 2
			}
			_, err := program.Run(options)
			*out = options.DataOut
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return first, second
}
