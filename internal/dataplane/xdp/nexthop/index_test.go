// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// onPods makes a fake kernel's routes those of a node with pods: the last byte of
// an address is the device that leads to it.
func onPods(k *fakeKernel) {
	k.routes = func(a netip.Addr) route {
		last := a.As4()
		return route{
			kind: unix.RTN_UNICAST, table: unix.RT_TABLE_MAIN,
			prefix: netip.PrefixFrom(a, 32), paths: []path{direct(1000 + int(last[3]))},
		}
	}
}

func pod(n int) Target {
	return Target{Address: netip.AddrFrom4([4]byte{10, 244, byte(n >> 8), byte(n)}), Handover: true}
}

// podDevice is the device to a pod, and its events when it comes.
func podDevice(n int) link {
	return link{index: 1000 + n&0xff, name: "veth", mac: lb.MAC{2, byte(n)}, mtu: 1500, up: true}
}

// Whatever is followed and forgotten, and wherever routes move, the index says
// what a look at everything would.
func TestIndexIsExact(t *testing.T) {
	table, k := newFake(t)
	onPods(k)
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := random.IntN(300)
		switch random.IntN(6) {
		case 0:
			table.follow(vipOf(byte(n)), []Target{pod(n), pod(random.IntN(300)), pod(random.IntN(300))})
		case 1:
			table.forget(vipOf(byte(n)))
		case 2:
			table.linkChanged(podDevice(n))
		case 3:
			table.linkGone(podDevice(n).index)
		case 4:
			table.routeChanged(netip.PrefixFrom(pod(n).Address, 24+random.IntN(9)).Masked(), unix.RT_TABLE_MAIN)
			settled(t, table)
		case 5:
			device := podDevice(n)
			device.master = random.IntN(3)
			table.linkChanged(device)
		}
		checkIndex(t, table)
	}
}

func checkIndex(t *testing.T, table *table) {
	t.Helper()
	routed := 0
	for _, e := range table.entries {
		for _, p := range e.route.paths {
			routed++
			if _, ok := table.index.byDevice[p.index][e]; !ok {
				t.Fatalf("%s: not found by device %d", e.target.Address, p.index)
			}
		}
	}
	for _, entries := range table.index.byDevice {
		routed -= len(entries)
	}
	if routed != 0 {
		t.Fatalf("%d entries too few are found by their devices", routed)
	}
	for bridge := range 3 {
		want := 0
		for _, l := range table.view.links {
			if bridge > 0 && l.master == bridge {
				want++
			}
		}
		if got := table.ports(bridge); len(got) != want {
			t.Fatalf("bridge %d: %d ports, want %d", bridge, len(got), want)
		}
	}
	order := table.index.byAddress
	if order == nil {
		return
	}
	sorted := slices.IsSortedFunc(order, func(a, b *entry) int { return a.target.Address.Compare(b.target.Address) })
	if len(order) != len(table.entries) || !sorted {
		t.Fatalf("%d of %d entries by address, sorted: %v", len(order), len(table.entries), sorted)
	}
	for _, e := range order {
		if table.entries[e.target] != e {
			t.Fatalf("%s is in order, and followed no more", e.target.Address)
		}
	}
}

// One more pod on a node that follows twenty thousand: its device, the gateway's
// address on it, its route, and the service that gets it.
func BenchmarkOneMorePod(b *testing.B) {
	const all = 20000
	k := &fakeKernel{device: machine(), neighbours: map[neighbourKey]neighbour{}}
	onPods(k)
	k.own = []address{{index: eth0, prefix: netip.MustParsePrefix("10.0.0.5/8")}}
	table := readTable(b, k)
	for n := range all {
		table.linkChanged(podDevice(n))
		table.follow(lb.VIP{Address: pod(n / 10).Address, Port: 80}, []Target{pod(n)})
	}
	if _, err := table.settle(); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		device := podDevice(all)
		table.linkGone(device.index)
		device.up = false
		table.linkChanged(device)
		device.up = true
		table.linkChanged(device)
		table.addressChanged(device.index, netip.MustParseAddr("10.244.0.1"))
		table.routeChanged(netip.PrefixFrom(pod(all).Address, 32), unix.RT_TABLE_MAIN)
		table.follow(lb.VIP{Address: pod(1).Address, Port: 81}, []Target{pod(all + i%2)})
		if _, err := table.settle(); err != nil {
			b.Fatal(err)
		}
	}
}
