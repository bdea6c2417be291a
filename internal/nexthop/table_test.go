// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// fakeKernel counts its queries. It sends no events: tests do.
type fakeKernel struct {
	device     map[int]link
	own        []address
	routes     func(netip.Addr) route
	neighbours map[neighbourKey]neighbour
	refuse     error // of addresses and probe

	lookups  int
	probed   []neighbourKey
	released []neighbourKey
}

func (k *fakeKernel) links() ([]link, error) { return slices.Collect(maps.Values(k.device)), nil }

func (k *fakeKernel) addresses() ([]address, error) { return k.own, k.refuse }

func (k *fakeKernel) route(to netip.Addr) route {
	k.lookups++
	return k.routes(to)
}

func (k *fakeKernel) neighbour(key neighbourKey) (neighbour, error) { return k.neighbours[key], nil }

func (k *fakeKernel) probe(key neighbourKey, _ bool) error {
	k.probed = append(k.probed, key)
	return k.refuse
}

func (k *fakeKernel) release(key neighbourKey) error {
	k.released = append(k.released, key)
	return nil
}

// newFake returns a table over a kernel with eth0 and 10.0.0.0/8 on it.
func newFake(t *testing.T) (*table, *fakeKernel) {
	t.Helper()
	k := &fakeKernel{
		device:     machine(),
		own:        []address{{index: eth0, prefix: netip.MustParsePrefix("10.0.0.5/8")}},
		neighbours: map[neighbourKey]neighbour{},
		routes: func(netip.Addr) route {
			return route{
				kind: unix.RTN_UNICAST, table: unix.RT_TABLE_MAIN,
				prefix: netip.MustParsePrefix("10.0.0.0/8"), paths: []path{direct(eth0)},
			}
		},
	}
	return readTable(t, k), k
}

func readTable(t testing.TB, k *fakeKernel) *table {
	t.Helper()
	table := newTable(slog.New(slog.DiscardHandler), k, []string{"eth0"}, false)
	if err := table.sync(); err != nil {
		t.Fatal(err)
	}
	return table
}

func vipOf(n byte) lb.VIP {
	return lb.VIP{Address: netip.AddrFrom4([4]byte{10, 1, 1, n}), Port: 80, Protocol: lb.TCP}
}

func onLink(addresses ...string) []Target {
	var targets []Target
	for _, a := range addresses {
		targets = append(targets, Target{Address: ip(a), OnLink: true})
	}
	return targets
}

func changed(t *testing.T, table *table) []lb.VIP {
	t.Helper()
	vips, err := table.decideMarked()
	if err != nil {
		t.Fatal(err)
	}
	return vips
}

// wantChanged decides again and checks for how many services something has changed.
func wantChanged(t *testing.T, table *table, services int) {
	t.Helper()
	if got := changed(t, table); len(got) != services {
		t.Errorf("changed %v, want %d services", got, services)
	}
}

// wantError checks why the first of a service's targets isn't reached.
func wantError(t *testing.T, table *table, vip lb.VIP, targets []Target, want string) {
	t.Helper()
	if got := table.follow(vip, targets)[0]; text(got.Err) != want {
		t.Errorf("result %+v, want error %q", got, want)
	}
}

func key0(a string) neighbourKey { return neighbourKey{eth0, ip(a)} }

func managed(n neighbour) neighbour {
	n.managed, n.marked = true, true
	return n
}

func TestFollow(t *testing.T) {
	table, k := newFake(t)
	got := table.follow(vipOf(1), onLink("10.0.0.21"))
	if text(got[0].Err) != "neighbour 10.0.0.21 on eth0 is unresolved" {
		t.Fatalf("result %+v", got[0])
	}
	if !slices.Equal(k.probed, []neighbourKey{key0("10.0.0.21")}) {
		t.Fatalf("probed %v", k.probed)
	}
	table.follow(vipOf(2), onLink("10.0.0.21", "10.0.0.22"))
	table.neighbours.changed(key0("10.0.0.21"), managed(reachable(macBackend)))
	if got := changed(t, table); !slices.Equal(got, []lb.VIP{vipOf(1), vipOf(2)}) {
		t.Errorf("changed %v", got)
	}
	if got := table.follow(vipOf(1), onLink("10.0.0.21")); got[0].Err != nil || got[0].Hop.Destination != macBackend {
		t.Errorf("result %+v", got[0])
	}
	if k.lookups != 2 {
		t.Errorf("%d route look-ups for two targets", k.lookups)
	}
	// Usable as before: no notification.
	table.neighbours.changed(key0("10.0.0.21"), managed(neighbour{state: unix.NUD_STALE, mac: macBackend}))
	wantChanged(t, table, 0)
	table.neighbours.changed(key0("10.0.0.21"), managed(neighbour{state: unix.NUD_FAILED}))
	wantChanged(t, table, 2)
}

func TestForget(t *testing.T) {
	table, k := newFake(t)
	k.neighbours[key0("10.0.0.23")] = neighbour{state: unix.NUD_PERMANENT, mac: macBackend}
	k.neighbours[key0("10.0.0.24")] = neighbour{state: unix.NUD_REACHABLE, mac: macBackend, managed: true}
	k.neighbours[key0("10.0.0.25")] = neighbour{state: unix.NUD_STALE, mac: macBackend, learned: true}
	k.neighbours[key0("10.0.0.26")] = managed(reachable(macBackend)) // an earlier process's
	table.follow(vipOf(1), onLink("10.0.0.21", "10.0.0.22", "10.0.0.23", "10.0.0.24", "10.0.0.25", "10.0.0.26"))
	table.follow(vipOf(2), onLink("10.0.0.21"))
	if want := []neighbourKey{key0("10.0.0.21"), key0("10.0.0.22")}; !slices.Equal(k.probed, want) {
		t.Errorf("probed %v, want %v: the others are owned by other programs", k.probed, want)
	}
	table.neighbours.changed(key0("10.0.0.22"), managed(neighbour{state: unix.NUD_INCOMPLETE}))

	table.forget(vipOf(1))
	slices.SortFunc(k.released, func(a, b neighbourKey) int { return a.address.Compare(b.address) })
	if want := []neighbourKey{key0("10.0.0.22"), key0("10.0.0.26")}; !slices.Equal(k.released, want) {
		t.Errorf("released %v, want %v", k.released, want)
	}
	table.follow(vipOf(2), onLink("10.0.0.22"))
	if len(table.entries) != 1 || len(table.neighbours.watched) != 1 {
		t.Errorf("%d entries and %d neighbours, want one each", len(table.entries), len(table.neighbours.watched))
	}
	table.forget(vipOf(2))
	table.forget(vipOf(2))
	if len(table.entries)+len(table.neighbours.watched)+len(table.owners)+len(table.stale) != 0 {
		t.Errorf("left: %+v", table)
	}
}

// A storm of routes, neighbours, devices and addresses that aren't the backends'
// costs no route look-up.
func TestUnrelatedEvents(t *testing.T) {
	table, k := newFake(t)
	targets := make([]Target, 4000)
	for i := range targets {
		a := [4]byte{10, 0}
		binary.BigEndian.PutUint16(a[2:], uint16(i))
		targets[i] = Target{Address: netip.AddrFrom4(a)}
		k.neighbours[neighbourKey{eth0, targets[i].Address}] = managed(reachable(macBackend))
	}
	table.follow(vipOf(1), targets)
	k.lookups = 0
	for i := range 1000 {
		other := netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
		table.routeChanged(netip.PrefixFrom(other, 32), unix.RT_TABLE_MAIN)
		table.routeChanged(netip.MustParsePrefix("0.0.0.0/0"), unix.RT_TABLE_MAIN)
		table.neighbours.changed(neighbourKey{eth0, other}, reachable(macGateway))
		table.linkChanged(link{index: 1000 + i, name: "pod", up: i%2 == 0})
		table.linkGone(1000 + i)
		table.addressChanged(1000+i, other)
		table.linkChanged(k.device[eth0])
	}
	if got := changed(t, table); len(got) != 0 || k.lookups != 0 {
		t.Errorf("changed %v after %d look-ups", got, k.lookups)
	}
}

func TestRelatedEvents(t *testing.T) {
	tunnel := Target{Address: ip("10.0.0.21")}
	down := machine()[eth0]
	down.up = false
	for _, test := range []struct {
		name  string
		event func(*table)
		want  int // look-ups for the one target
	}{
		{"route to the target", func(t *table) { t.routeChanged(netip.MustParsePrefix("10.0.0.21/32"), unix.RT_TABLE_MAIN) }, 1},
		{"the route itself", func(t *table) { t.routeChanged(netip.MustParsePrefix("10.0.0.0/8"), unix.RT_TABLE_MAIN) }, 1},
		{"default route of another table", func(t *table) { t.routeChanged(netip.MustParsePrefix("0.0.0.0/0"), 100) }, 1},
		{"neighbouring prefix", func(t *table) { t.routeChanged(netip.MustParsePrefix("10.0.0.22/32"), unix.RT_TABLE_MAIN) }, 0},
		{"device", func(t *table) { t.linkChanged(down) }, 1},
		{"device gone", func(t *table) { t.linkGone(eth0) }, 1},
		{"address on the device", func(t *table) { t.addressChanged(eth0, ip("10.0.0.9")) }, 1},
		{"the source address elsewhere", func(t *table) { t.addressChanged(eth1, ip("10.0.0.5")) }, 0},
		{"address elsewhere", func(t *table) { t.addressChanged(eth1, ip("10.0.0.9")) }, 0},
		{"rule", (*table).rerouteAll, 1},
		{"events lost", func(t *table) { t.unsynced = true }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			table, k := newFake(t)
			k.neighbours[key0("10.0.0.21")] = managed(reachable(macBackend))
			table.follow(vipOf(1), []Target{tunnel})
			k.lookups = 0
			test.event(table)
			changed(t, table)
			if k.lookups != test.want {
				t.Errorf("%d look-ups, want %d", k.lookups, test.want)
			}
		})
	}
}

// A VLAN device's route depends on the interface below, and an entry without a
// route on the interfaces.
func TestLinkEvents(t *testing.T) {
	table, k := newFake(t)
	k.neighbours[neighbourKey{eth0vlan, ip("10.0.0.21")}] = managed(reachable(macBackend))
	k.routes = func(to netip.Addr) route {
		if to == ip("10.0.0.22") {
			return route{}
		}
		return unicast(direct(eth0vlan))
	}
	table.follow(vipOf(1), onLink("10.0.0.21"))
	table.follow(vipOf(2), onLink("10.0.0.22"))
	down := k.device[eth0]
	down.up = false
	table.linkChanged(down)
	if got := changed(t, table); !slices.Equal(got, []lb.VIP{vipOf(1), vipOf(2)}) {
		t.Errorf("changed %v", got)
	}
	wantError(t, table, vipOf(1), onLink("10.0.0.21"), "interface eth0 is down")
	wantError(t, table, vipOf(2), onLink("10.0.0.22"), "no route to 10.0.0.22 (down: eth0)")
}

// A bridge has no pods behind it while it has a port to other machines. Pods that come and go change
// nothing.
func TestBridgePorts(t *testing.T) {
	table, k := newFake(t)
	table.view.filterPods = true
	const bridge, veth, nic = 20, 21, 22
	k.routes = func(netip.Addr) route { return unicast(direct(bridge)) }
	table.linkChanged(link{index: bridge, name: "cni0", kind: kindBridge, mac: lb.MAC{2}, mtu: 1500, up: true})
	if got := table.follow(vipOf(1), []Target{pod(1)}); !got[0].Hop.ToStack() {
		t.Fatalf("result %+v, want this machine's network stack", got[0])
	}
	other := link{index: nic, name: "eth3", mtu: 1500, up: true}
	port := other
	port.master = bridge
	for _, step := range []struct {
		name    string
		event   func()
		toStack bool
		changed []lb.VIP
	}{
		{"a pod comes", func() { table.linkChanged(link{index: veth, kind: kindVeth, master: bridge, up: true}) }, true, nil},
		{"a network's port comes", func() { table.linkChanged(port) }, false, []lb.VIP{vipOf(1)}},
		{"the pod goes", func() { table.linkGone(veth) }, false, nil},
		{"the port leaves the bridge", func() { table.linkChanged(other) }, true, []lb.VIP{vipOf(1)}},
		{"it comes back", func() { table.linkChanged(port) }, false, []lb.VIP{vipOf(1)}},
		{"it is removed", func() { table.linkGone(nic) }, true, []lb.VIP{vipOf(1)}},
	} {
		step.event()
		if got := changed(t, table); !slices.Equal(got, step.changed) {
			t.Errorf("%s: changed %v, want %v", step.name, got, step.changed)
		}
		if got := table.follow(vipOf(1), []Target{pod(1)}); got[0].Hop.ToStack() != step.toStack {
			t.Errorf("%s: %+v", step.name, got[0])
		}
	}
}

// Without managed neighbours the table probes: an unresolved one every second, a
// resolved one every five.
func TestProbesWithoutManagedNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, k := newFake(t)
		table.follow(vipOf(1), onLink("10.0.0.21"))
		seconds := func(n int) int {
			k.probed = nil
			for range n {
				time.Sleep(time.Second)
				table.tick()
				changed(t, table)
			}
			return len(k.probed)
		}
		if got := seconds(10); got != 10 {
			t.Errorf("unresolved: %d probes in 10 s", got)
		}
		table.neighbours.changed(key0("10.0.0.21"), reachable(macBackend))
		if got := seconds(20); got != 4 {
			t.Errorf("resolved: %d probes in 20 s", got)
		}
		table.neighbours.changed(key0("10.0.0.21"), managed(reachable(macBackend)))
		if got := seconds(20); got != 0 {
			t.Errorf("managed: %d probes in 20 s", got)
		}
		table.neighbours.changed(key0("10.0.0.21"), neighbour{})
		changed(t, table)
		if len(k.probed) != 1 {
			t.Errorf("vanished: %d probes at once", len(k.probed))
		}
	})
}

func TestProbeError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, k := newFake(t)
		k.refuse = errors.New("table full")
		table.follow(vipOf(1), onLink("10.0.0.21"))
		wantError(t, table, vipOf(1), onLink("10.0.0.21"), "neighbour 10.0.0.21 on eth0 is unresolved: table full")
		k.refuse = nil
		time.Sleep(time.Second)
		table.tick()
		wantChanged(t, table, 1)
	})
}

func TestLookupRetry(t *testing.T) {
	table, k := newFake(t)
	k.refuse = unix.ENOMEM
	k.neighbours[key0("10.0.0.21")] = managed(reachable(macBackend))
	tunnel := []Target{{Address: ip("10.0.0.21")}}
	wantError(t, table, vipOf(1), tunnel, "addresses of this machine: cannot allocate memory")
	k.refuse = nil
	table.tick()
	wantChanged(t, table, 1)
	if got := table.follow(vipOf(1), tunnel); got[0].Err != nil || got[0].Hop.Local != ip("10.0.0.5") {
		t.Errorf("result %+v", got[0])
	}
}

// onPods sets a fake kernel's routes to pods of its node: the last byte of
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

// Whatever is followed and forgotten, and wherever routes move, the index agrees
// with a search of everything.
func TestIndex(t *testing.T) {
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
			changed(t, table)
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
	if _, err := table.decideMarked(); err != nil {
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
		if _, err := table.decideMarked(); err != nil {
			b.Fatal(err)
		}
	}
}

// An interface on which XDP runs, or another one by its name, is noticed when it comes, is
// renamed or goes, and others aren't.
func TestInterfacesOfXDP(t *testing.T) {
	table, k := newFake(t)
	events := func(happens func()) bool {
		table.relinked = false
		happens()
		return table.relinked
	}
	other, again := k.device[eth0], k.device[eth0]
	other.index, other.name = 900, "eth9"
	again.index = 901
	for _, c := range []struct {
		what    string
		happens func()
		want    bool
	}{
		{"another device comes", func() { table.linkChanged(other) }, false},
		{"the interface stays as it is", func() { table.linkChanged(k.device[eth0]) }, false},
		{"the interface goes", func() { table.linkGone(eth0) }, true},
		{"it comes again", func() { table.linkChanged(again) }, true},
		{"it is renamed", func() {
			again.name = "eth8"
			table.linkChanged(again)
		}, true},
		{"another device goes", func() { table.linkGone(900) }, false},
	} {
		if got := events(c.happens); got != c.want {
			t.Errorf("%s: noticed is %v, want %v", c.what, got, c.want)
		}
	}
}

// The entries in the order of their addresses are those that there are, whether they come and
// go one by one between events or many at once.
func TestIndexOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x, all := index{byDevice: map[int]map[*entry]struct{}{}}, map[Target]*entry{}
	for _, edits := range []int{10, 1, maxEdits, 0, 3 * maxEdits, 20, maxEdits + 1} {
		for range edits {
			address := netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(4)), byte(r.IntN(256))})
			target := Target{Address: address}
			if e, known := all[target]; known {
				delete(all, target)
				x.remove(e)
			} else {
				all[target] = &entry{target: target}
				x.add(all[target])
			}
		}
		sorted := x.sort(all)
		if len(sorted) != len(all) || !slices.IsSortedFunc(sorted, func(a, b *entry) int { return a.target.Address.Compare(b.target.Address) }) {
			t.Errorf("after %d edits %d entries, want %d, sorted", edits, len(sorted), len(all))
		}
		for _, e := range sorted {
			if all[e.target] != e {
				t.Errorf("after %d edits: %s has left", edits, e.target.Address)
			}
		}
	}
}
