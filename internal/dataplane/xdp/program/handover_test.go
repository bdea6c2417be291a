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
		indexes[i] = addPair(t, name, 0).Attrs().Index
	}
	return indexes[0], indexes[1]
}

// addPair makes a pair of interfaces, with that index unless it is 0.
func addPair(t *testing.T, name string, index int) netlink.Link {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index = name, index
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "-peer"}))
	link, err := netlink.LinkByName(name)
	must(t, err)
	return link
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
	t.Cleanup(func() { must(t, h.Close()) })
	return h
}

// end closes a handover as the end of its process does, which leaves the filters.
func end(t *testing.T, h *Handover) {
	t.Helper()
	must(t, h.Close())
	h.forward, h.replies = nil, nil
}

// wantFilters checks how many filters each interface has for a direction.
func wantFilters(t *testing.T, when string, want int, d Direction, indexes ...int) {
	t.Helper()
	for _, index := range indexes {
		if got := programs(t, index, d); len(got) != want {
			t.Fatalf("%s: %s filters %v of interface %d, want %d", when, d, got, index, want)
		}
	}
}

// Programs come with the first device, and stay when the process that attached
// them ends; the next one replaces them, and removes those that it doesn't need.
func TestHandoverSuccessor(t *testing.T) {
	in, tunnel := pairs(t)
	first := open(t, "lb1")
	must(t, first.Retain(nil))
	wantFilters(t, "without a device that needs them", 0, Ingress, in, tunnel)
	must(t, first.Attach(Device{Index: tunnel}))
	must(t, first.Attach(Device{Index: tunnel}))
	before := []map[string]int{filters(t, in), filters(t, tunnel)}
	wantFilters(t, "with a device", 1, Ingress, in, tunnel)
	end(t, first)
	wantFilters(t, "after the process", 1, Ingress, tunnel)

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
	wantFilters(t, "retained", 1, Ingress, in, tunnel)
	must(t, second.Retain(nil))
	wantFilters(t, "without a device", 0, Ingress, in, tunnel)
	must(t, second.Attach(Device{Index: tunnel}))
	wantFilters(t, "with a device again", 1, Ingress, in, tunnel)
}

// A device that is retained because an earlier process's backends are behind it loses the filter
// when these have another way, for example through the network stack.
func TestRetainedOfAnEarlierProcess(t *testing.T) {
	_, tunnel := pairs(t)
	first := open(t, "lb1")
	must(t, first.Attach(Device{Index: tunnel}))
	end(t, first)

	second := open(t, "lb1")
	stack := Device{Index: nexthop.Loopback}
	must(t, second.Attach(stack))
	must(t, second.Retain([]Device{stack, {Index: tunnel}}))
	wantFilters(t, "retained", 1, Ingress, tunnel)
	must(t, second.Retain([]Device{stack}))
	wantFilters(t, "not retained", 0, Ingress, tunnel)
}

// Answers from the network stack are translated where they leave, by a filter that also stays, and
// leaves with an interface that isn't the configuration's any more.
func TestHandoverToStack(t *testing.T) {
	in, tunnel := pairs(t)
	stack := Device{Index: nexthop.Loopback}
	first := open(t, "lb1")
	first.config.Interfaces = []string{"in", "tunnel"}
	must(t, first.Attach(stack))
	wantFilters(t, "attached", 1, Ingress, in, tunnel)
	wantFilters(t, "attached", 1, Egress, in, tunnel)
	before := programs(t, in, Egress)
	end(t, first)

	second := open(t, "lb1")
	must(t, second.Attach(stack))
	for name, id := range programs(t, in, Egress) {
		if before[name] == 0 || before[name] == id {
			t.Errorf("filter %s with program %d, want another in the place of %v", name, id, before)
		}
	}
	must(t, second.Retain([]Device{stack}))
	for _, d := range []Direction{Ingress, Egress} {
		wantFilters(t, "retained", 1, d, in)
		wantFilters(t, "at an interface of an earlier configuration", 0, d, tunnel)
	}
	must(t, second.Retain(nil))
	wantFilters(t, "without a device", 0, Ingress, in)
	wantFilters(t, "without a device", 0, Egress, in)
}

// Each owner removes its own filters, and no others.
func TestRemoveByOwner(t *testing.T) {
	in, tunnel := pairs(t)
	own := open(t, "lb1")
	must(t, own.Attach(Device{Index: tunnel}))
	must(t, own.Attach(Device{Index: nexthop.Loopback}))
	must(t, RemoveHandover("lb2"))
	wantFilters(t, "after another owner's removal", 1, Ingress, in, tunnel)
	wantFilters(t, "after another owner's removal", 1, Egress, in)
	if err := open(t, "lb2").Attach(Device{Index: tunnel}); err == nil {
		t.Error("another owner's filter was replaced")
	}
	must(t, RemoveHandover("lb1"))
	wantFilters(t, "after the removal", 0, Ingress, in, tunnel)
	wantFilters(t, "after the removal", 0, Egress, in)
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
func TestRemovedDevice(t *testing.T) {
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
func TestReusedDeviceIndex(t *testing.T) {
	_, tunnel := pairs(t)
	h := open(t, "lb1")
	must(t, h.Attach(Device{Index: tunnel, MAC: lb.MAC{2, 0, 0, 0, 0, 1}}))
	link, err := netlink.LinkByIndex(tunnel)
	must(t, err)
	must(t, netlink.LinkDel(link))
	addPair(t, "other", tunnel)
	must(t, h.Attach(Device{Index: tunnel, MAC: lb.MAC{2, 0, 0, 0, 0, 2}}))
	wantFilters(t, "with another device", 1, Ingress, tunnel)
}

// Devices come and go by the hundreds: each is a matter of its own, and one that
// stays keeps its filter.
func TestManyDevices(t *testing.T) {
	_, tunnel := pairs(t)
	h := open(t, "lb1")
	must(t, h.Retain(nil)) // looks for earlier attachments, once
	must(t, h.Attach(Device{Index: tunnel}))
	before := filters(t, tunnel)
	all := []Device{{Index: tunnel}}
	for i := range 100 {
		link := addPair(t, fmt.Sprintf("pod%d", i), 0)
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
