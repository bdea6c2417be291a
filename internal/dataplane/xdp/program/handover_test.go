// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

// pairs gives the test a network namespace with two pairs of interfaces: "in" and
// "tunnel" are an end each.
func pairs(t *testing.T) (in, tunnel int) {
	t.Helper()
	ownNamespace(t)
	indexes := make([]int, 2)
	for i, name := range []string{"in", "tunnel"} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "-peer"}))
		link, err := netlink.LinkByName(name)
		must(t, err)
		indexes[i] = link.Attrs().Index
	}
	return indexes[0], indexes[1]
}

// filters are the ids of the programs by which packets come in, by the names of their
// filters.
func filters(t *testing.T, index int) map[string]int {
	t.Helper()
	return programs(t, index, Ingress)
}

// tables are those that the programs need, empty.
func tables(t *testing.T) *table.Tables {
	t.Helper()
	few := 1 << 7
	all, err := table.Open("", table.Capacity{Services: few, Backends: few, Flows: few, Sources: few, Limited: few, Clients: few, Sessions: few}.OrDefault(), nil)
	must(t, err)
	t.Cleanup(func() { must(t, all.Close()) })
	return all
}

func open(t *testing.T, owner string) *Handover {
	t.Helper()
	h := NewHandover(HandoverConfig{Owner: owner, Interfaces: []string{"in"}, Tables: tables(t)})
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// Programs come with the first device, and stay when the process that attached
// them ends; the next one replaces them, and takes away what it doesn't need.
func TestHandoverOutlivesItsProcess(t *testing.T) {
	in, tunnel := pairs(t)
	first := open(t, "lb1")
	must(t, first.Retain(nil))
	if len(filters(t, in))+len(filters(t, tunnel)) != 0 {
		t.Error("filters without a device that needs them")
	}
	must(t, first.Attach(Device{Index: tunnel}))
	must(t, first.Attach(Device{Index: tunnel}))
	before := []map[string]int{filters(t, in), filters(t, tunnel)}
	if len(before[0]) != 1 || len(before[1]) != 1 {
		t.Fatalf("filters %v, want one at each end", before)
	}
	must(t, first.Close())
	first.forward, first.replies = nil, nil
	if got := filters(t, tunnel); len(got) != 1 {
		t.Errorf("filters %v after the process", got)
	}

	second := open(t, "lb1")
	must(t, second.Attach(Device{Index: tunnel}))
	for i, index := range []int{in, tunnel} {
		got := filters(t, index)
		for name, id := range before[i] {
			if len(got) != 1 || got[name] == 0 || got[name] == id {
				t.Errorf("filters %v, want another program in the place of %v", got, before[i])
			}
		}
	}
	must(t, second.Retain([]Device{{Index: tunnel}}))
	if len(filters(t, in)) != 1 || len(filters(t, tunnel)) != 1 {
		t.Error("what is needed was taken away")
	}
	must(t, second.Retain(nil))
	if len(filters(t, in))+len(filters(t, tunnel)) != 0 {
		t.Error("filters are left without a device that needs them")
	}
	must(t, second.Attach(Device{Index: tunnel}))
	if len(filters(t, in)) != 1 || len(filters(t, tunnel)) != 1 {
		t.Error("no filters for a device that is needed again")
	}
}

// A device that is retained because an earlier process's backends are behind it loses the filter
// when these have another way, for example through the network stack.
func TestRetainedOfAnEarlierProcess(t *testing.T) {
	_, tunnel := pairs(t)
	first := open(t, "lb1")
	must(t, first.Attach(Device{Index: tunnel}))
	must(t, first.Close())
	first.forward, first.replies = nil, nil

	second := open(t, "lb1")
	stack := Device{Index: nexthop.Loopback}
	must(t, second.Attach(stack))
	must(t, second.Retain([]Device{stack, {Index: tunnel}}))
	if len(filters(t, tunnel)) != 1 {
		t.Error("what is needed was taken away")
	}
	must(t, second.Retain([]Device{stack}))
	if got := filters(t, tunnel); len(got) != 0 {
		t.Errorf("filters %v are left", got)
	}
}

// Answers from the network stack are translated where they leave, by a filter that also stays, and
// leaves with an interface that isn't the configuration's any more.
func TestHandoverToStack(t *testing.T) {
	in, tunnel := pairs(t)
	stack := Device{Index: nexthop.Loopback}
	first := open(t, "lb1")
	first.config.Interfaces = []string{"in", "tunnel"}
	must(t, first.Attach(stack))
	for _, index := range []int{in, tunnel} {
		if len(filters(t, index)) != 1 || len(programs(t, index, Egress)) != 1 {
			t.Fatalf("filters %v and %v, want one in each direction", filters(t, index), programs(t, index, Egress))
		}
	}
	before := programs(t, in, Egress)
	must(t, first.Close())
	first.forward, first.replies = nil, nil

	second := open(t, "lb1")
	must(t, second.Attach(stack))
	for name, id := range programs(t, in, Egress) {
		if before[name] == 0 || before[name] == id {
			t.Errorf("filter %s with program %d, want another in the place of %v", name, id, before)
		}
	}
	must(t, second.Retain([]Device{stack}))
	if len(filters(t, in)) != 1 || len(programs(t, in, Egress)) != 1 {
		t.Error("what is needed was taken away")
	}
	if len(filters(t, tunnel))+len(programs(t, tunnel, Egress)) != 0 {
		t.Error("filters are left at an interface of an earlier configuration")
	}
	must(t, second.Retain(nil))
	if len(filters(t, in))+len(programs(t, in, Egress)) != 0 {
		t.Error("filters are left without a device that needs them")
	}
}

// Each owner removes its own filters, and no others.
func TestRemoveLeavesOthers(t *testing.T) {
	in, tunnel := pairs(t)
	own := open(t, "lb1")
	must(t, own.Attach(Device{Index: tunnel}))
	must(t, own.Attach(Device{Index: nexthop.Loopback}))
	must(t, RemoveHandover("lb2"))
	if len(filters(t, in)) != 1 || len(filters(t, tunnel)) != 1 || len(programs(t, in, Egress)) != 1 {
		t.Error("another owner's filters were removed")
	}
	if err := open(t, "lb2").Attach(Device{Index: tunnel}); err == nil {
		t.Error("another owner's filter was replaced")
	}
	must(t, RemoveHandover("lb1"))
	if len(filters(t, in))+len(filters(t, tunnel))+len(programs(t, in, Egress)) != 0 {
		t.Error("filters are left")
	}
}

// The kernel takes the program of every kind of device.
func TestReplyPrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	for _, length := range []uint32{0, 14} {
		program, err := LoadReply(HandoverConfig{Tables: tables(t)}, length)
		must(t, err)
		must(t, program.Close())
	}
}

// Attaching to a removed device fails; detaching from it does nothing.
func TestDeviceIsGone(t *testing.T) {
	_, tunnel := pairs(t)
	h := open(t, "lb1")
	must(t, h.Attach(Device{Index: tunnel}))
	link, err := netlink.LinkByIndex(tunnel)
	must(t, err)
	must(t, netlink.LinkDel(link))
	must(t, h.Retain(nil))
	if err := h.Attach(Device{Index: tunnel}); !errors.Is(err, ErrGone) || len(h.devices) > 0 {
		t.Errorf("error %v, devices %v, want that it is gone", err, h.devices)
	}
}

// A device that got the index of one that is gone is another one, as its MAC
// address shows; the first may not have been noticed.
func TestDeviceTakesAnothersIndex(t *testing.T) {
	_, tunnel := pairs(t)
	h := open(t, "lb1")
	must(t, h.Attach(Device{Index: tunnel, MAC: lb.MAC{2, 0, 0, 0, 0, 1}}))
	link, err := netlink.LinkByIndex(tunnel)
	must(t, err)
	must(t, netlink.LinkDel(link))
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index = "other", tunnel
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "other-peer"}))
	must(t, h.Attach(Device{Index: tunnel, MAC: lb.MAC{2, 0, 0, 0, 0, 2}}))
	if got := filters(t, tunnel); len(got) != 1 {
		t.Errorf("filters %v, want one", got)
	}
}

// Devices come and go by the hundreds: each is a matter of its own, and one that
// stays keeps its filter.
func TestDevicesComeAndGo(t *testing.T) {
	_, tunnel := pairs(t)
	h := open(t, "lb1")
	must(t, h.Retain(nil)) // looks for what others have left, once
	must(t, h.Attach(Device{Index: tunnel}))
	before := filters(t, tunnel)
	all := []Device{{Index: tunnel}}
	for i := range 100 {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = fmt.Sprintf("pod%d", i)
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: attrs.Name + "-peer"}))
		link, err := netlink.LinkByName(attrs.Name)
		must(t, err)
		all = append(all, Device{Index: link.Attrs().Index, MAC: lb.MAC(link.Attrs().HardwareAddr)})
		must(t, h.Attach(all[i+1]))
		if i%2 == 1 {
			must(t, netlink.LinkDel(link))
		}
	}
	must(t, h.Retain(all[:51]))
	for i, d := range all {
		want := 1
		if i > 50 {
			want = 0
		}
		if i > 0 && i%2 == 0 {
			continue // it is gone
		}
		if got := filters(t, d.Index); len(got) != want {
			t.Errorf("device %d: filters %v, want %d", i, got, want)
		}
	}
	if got := filters(t, tunnel); !maps.Equal(got, before) {
		t.Errorf("filters %v, want %v as before", got, before)
	}
}
