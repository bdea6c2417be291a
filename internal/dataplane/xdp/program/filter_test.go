// SPDX-License-Identifier: Apache-2.0

package program

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"fairlead.io/fairlead/internal/nexthop"
)

// ownNamespace puts the test on a thread with a network namespace of its own,
// which ends with the thread.
func ownNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // never unlocked
	ns, err := netns.New()
	must(t, err)
	must(t, ns.Close())
}

// tcProgram lets the next filter decide.
func tcProgram(t *testing.T) *ebpf.Program {
	t.Helper()
	const unspecified = -1 // TC_ACT_UNSPEC
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, unspecified), asm.Return()},
	})
	must(t, err)
	t.Cleanup(func() { program.Close() })
	return program
}

// programs are the ids of an interface's tc programs by the names of their filters.
func programs(t *testing.T, index int, d Direction) map[string]int {
	t.Helper()
	link, err := netlink.LinkByIndex(index)
	must(t, err)
	filters, err := netlink.FilterList(link, uint32(d))
	must(t, err)
	ids := make(map[string]int)
	for _, f := range filters {
		ids[f.(*netlink.BpfFilter).Name] = f.(*netlink.BpfFilter).Id
	}
	return ids
}

func id(t *testing.T, p *ebpf.Program) int {
	t.Helper()
	info, err := p.Info()
	must(t, err)
	id, _ := info.ID()
	return int(id)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A filter is replaced in its place, and detached without a trace, next to
// filters of others in both directions.
func TestFilter(t *testing.T) {
	ownNamespace(t)
	first, second := tcProgram(t), tcProgram(t)
	for _, d := range []Direction{Ingress, Egress} {
		f := Filter{Interface: nexthop.Loopback, Direction: d, Priority: 3, Name: "fairlead-test"}
		must(t, f.Detach()) // there is nothing yet, not even a place for filters
		other := f.attrs()
		other.Handle = 1
		must(t, f.Attach(first))
		must(t, netlink.FilterAdd(&netlink.BpfFilter{FilterAttrs: other, Fd: first.FD(), Name: "other", DirectAction: true}))
		must(t, f.Attach(second))
		if got := programs(t, nexthop.Loopback, d); len(got) != 2 || got[f.Name] != id(t, second) || got["other"] != id(t, first) {
			t.Errorf("%s: programs %v, want %s %d and other %d", d, got, f.Name, id(t, second), id(t, first))
		}
		must(t, f.Detach())
		must(t, f.Detach())
		if got := programs(t, nexthop.Loopback, d); len(got) != 1 || got["other"] != id(t, first) {
			t.Errorf("%s: programs %v after detaching, want other's alone", d, got)
		}
	}
}

// Another program's filter at the same place is neither replaced nor removed.
func TestFilterOfOtherProgram(t *testing.T) {
	ownNamespace(t)
	f := Filter{Interface: nexthop.Loopback, Direction: Egress, Priority: 3, Name: "fairlead-test"}
	others := Filter{Interface: nexthop.Loopback, Direction: Egress, Priority: 3, Name: "other"}
	program := tcProgram(t)
	must(t, others.Attach(program))
	if err := f.Attach(tcProgram(t)); err == nil || !strings.Contains(err.Error(), "another filter") {
		t.Errorf("attach: error %v, want that the place is taken", err)
	}
	must(t, f.Detach())
	if got := programs(t, nexthop.Loopback, Egress); got["other"] != id(t, program) {
		t.Errorf("programs %v, want other %d", got, id(t, program))
	}
}

// An interface that is gone has no filter to detach, and can't get one.
func TestFilterWithoutInterface(t *testing.T) {
	ownNamespace(t)
	f := Filter{Interface: 1000, Direction: Egress, Priority: 3, Name: "fairlead-test"}
	if err := f.Detach(); err != nil {
		t.Errorf("detach: %v", err)
	}
	if err := f.Attach(tcProgram(t)); err == nil || !strings.HasPrefix(err.Error(), "interface 1000 egress: ") {
		t.Errorf("attach: error %v, want one about interface 1000", err)
	}
}
