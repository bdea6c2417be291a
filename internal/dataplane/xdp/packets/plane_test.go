// SPDX-License-Identifier: Apache-2.0

// Package packets_test runs packets through the program of the XDP data plane and
// checks the verdict, the bytes, the counters, and the tables.
package packets_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/host/bpffs"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// testIndex is the interface that BPF_PROG_TEST_RUN pretends packets came from:
// the loopback. A hop through it is transmitted, any other one redirected.
const testIndex = 1

var testNumber atomic.Int64

// staticHops reaches every address except those that are lost; the MAC address
// of a hop says which one it is.
type staticHops struct {
	source lb.MAC
	index  int
	mtu    int
	vlan   uint16
	lost   map[netip.Addr]bool
	// pending are those that the kernel hasn't resolved yet.
	pending map[netip.Addr]bool
	local   map[netip.Addr]bool // are addresses of this machine
	// beyond are the machines behind gateways.
	beyond map[netip.Addr]bool
	// handover, if not 0, is a device by which the kernel sends, not XDP.
	handover int
	// noRoute is a pod without route, byDefault one with the default route alone.
	noRoute, byDefault netip.Addr
}

func newStaticHops() *staticHops {
	return &staticHops{
		source: ownMAC, index: testIndex, mtu: 1500,
		lost: map[netip.Addr]bool{}, pending: map[netip.Addr]bool{}, beyond: map[netip.Addr]bool{},
	}
}

var (
	ownMAC  = balancerMAC // interfaces have one address
	local4  = netip.MustParseAddr("10.0.2.11")
	local6  = netip.MustParseAddr("fd00:2::11")
	errLost = errors.New("neighbour is unresolved")
)

func macOf(a netip.Addr) lb.MAC {
	b := a.As16()
	return lb.MAC{2, b[11], b[12], b[13], b[14], b[15]}
}

func (h *staticHops) Follow(_ lb.VIP, targets []nexthop.Target) []nexthop.Result {
	results := make([]nexthop.Result, len(targets))
	for i, t := range targets {
		relay := t.Relay != nil && !h.beyond[*t.Relay]
		if relay {
			t = nexthop.Target{Address: *t.Relay, OnLink: true, MAC: t.MAC}
		}
		if h.lost[t.Address] {
			results[i].Err = errLost
			continue
		}
		if h.local[t.Address] {
			results[i].Err = nexthop.ErrLocal
			continue
		}
		if h.pending[t.Address] {
			results[i].Err = nexthop.ErrPending
			continue
		}
		hop := nexthop.Hop{Interface: "lo", Index: h.index, Source: h.source, Destination: macOf(t.Address), VLAN: h.vlan, MTU: h.mtu, Relay: relay}
		if t.Address == h.noRoute {
			results[i].Err = nexthop.ErrNoRoute
			continue
		}
		if t.Handover && h.handover != 0 && t.Address != h.byDefault {
			hop = nexthop.Hop{Interface: "tunnel", Index: h.handover, Handover: true, MTU: h.mtu}
		}
		if !t.MAC.IsZero() {
			hop.Destination = t.MAC
		}
		if !t.OnLink {
			hop.Local = local6
			if t.Address.Is4() {
				hop.Local = local4
			}
		}
		results[i].Hop = hop
	}
	return results
}

func (h *staticHops) Forget(lb.VIP)            {}
func (h *staticHops) Ports(int) []nexthop.Port { return nil }

func (h *staticHops) Interfaces() <-chan struct{} { return nil }
func (h *staticHops) Notify(func(lb.VIP))         {}
func (h *staticHops) Close() error                { return nil }

// repeated is a number of repetitions, of which short mode, meant for emulated processors, needs
// a sixteenth.
func repeated(n int) int {
	if testing.Short() {
		return n / 16
	}
	return n
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
}

// inNamespace runs fn in a new network namespace with a veth pair, fl0 and fl1, on a
// thread that ends with it.
func inNamespace(t *testing.T, fn func() error) {
	t.Helper()
	needRoot(t)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		defer close(done)      // also when fn calls t.FailNow, which ends this goroutine
		done <- func() error {
			ns, err := netns.New()
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := errors.Join(addVeth("fl0", "fl1"), setUp("lo")); err != nil {
				return err
			}
			return fn()
		}()
	}()
	must(t, <-done)
}

// addVeth makes a veth pair whose ends are up.
func addVeth(name, peer string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer}); err != nil {
		return err
	}
	return setUp(name, peer)
}

func setUp(names ...string) error {
	for _, name := range names {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	return nil
}

// testPins returns a pin directory of the test's own.
func testPins(t testing.TB) string {
	t.Helper()
	needRoot(t)
	dir := filepath.Join(bpffs.Root, fmt.Sprintf("fairlead-test-%d-%d", os.Getpid(), testNumber.Add(1)))
	t.Cleanup(func() {
		if err := xdp.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// testCapacity suffices for most tests; tables of the default size take longer to make
// than most tests run. Flows are so many that their rate limit, which depends on that
// number, lets tests' packets pass.
var testCapacity = table.Capacity{Services: 1 << 10, Backends: 1 << 12, RingEntries: 1 << 20, Flows: 1 << 16, Sources: 1 << 12, Limited: 1 << 10, Clients: 1 << 10, Sessions: 1 << 13}

func openTestPlane(t testing.TB, dir string, hops xdp.Resolver) *xdp.Unattached {
	t.Helper()
	return openPlane(t, dir, hops, testCapacity, nil)
}

// openQuietPlane opens a plane whose grace periods take no time: no packet is
// under way while tables change.
func openQuietPlane(t testing.TB, dir string, hops xdp.Resolver) *xdp.Unattached {
	t.Helper()
	return openPlane(t, dir, hops, testCapacity, noGrace)
}

func noGrace() error { return nil }

func openPlane(t testing.TB, dir string, hops xdp.Resolver, capacity table.Capacity, synchronize func() error) *xdp.Unattached {
	t.Helper()
	return openConfig(t, testConfig(dir, capacity, synchronize), hops)
}

func openConfig(t testing.TB, config xdp.Config, hops xdp.Resolver) *xdp.Unattached {
	t.Helper()
	p, err := xdp.OpenUnattached(config, hops)
	must(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func testConfig(dir string, capacity table.Capacity, synchronize func() error) xdp.Config {
	return xdp.Config{
		PinDir: dir, Capacity: capacity, Seed: 1, TunnelEnds: []netip.Addr{local4, local6},
		TunnelPeers: []netip.Prefix{netip.PrefixFrom(gateway4, 32), netip.PrefixFrom(gateway6, 128)},
		Log:         slog.New(slog.DiscardHandler), Synchronize: synchronize,
	}
}

// shared is the plane of all tests that need none of their own: making tables and verifying
// programs would take more time than all the rest. Its grace periods take no time.
var shared struct {
	// plane is nil before the first test, and behind one that has left something in it.
	plane *xdp.Unattached
	hops  sharedHops
	// programs are all that the plane had, by their features.
	programs map[program.Features]*ebpf.Program
	// used says that a test uses the plane.
	used bool
}

// sharedHops are the hops of the test that uses the shared plane.
type sharedHops struct{ *staticHops }

// hopsOf are the next hops of a test's plane.
func hopsOf(p *xdp.Unattached) *staticHops {
	if p == shared.plane {
		return shared.hops.staticHops
	}
	return p.Hops.(*staticHops)
}

// newTestPlane returns a plane without services or records that is attached nowhere; packets
// are put into its program by run.
func newTestPlane(t *testing.T) (*xdp.Unattached, *staticHops) {
	t.Helper()
	needRoot(t)
	hops := newStaticHops()
	if shared.used { // a test with two planes
		return openTestPlane(t, testPins(t), hops), hops
	}
	if shared.plane == nil {
		plane, err := xdp.OpenUnattached(testConfig("", testCapacity, noGrace), &shared.hops)
		must(t, err)
		shared.plane, shared.programs = plane, map[program.Features]*ebpf.Program{}
	}
	shared.hops, shared.used = sharedHops{hops}, true
	t.Cleanup(func() {
		shared.used = false
		if err := empty(shared.plane); err != nil {
			t.Log("the next test has another plane: ", err)
			must(t, shared.plane.Close())
			for _, p := range shared.programs {
				must(t, p.Close())
			}
			shared.plane = nil
		}
	})
	return shared.plane, hops
}

// programOf is the program that suits a plane's services. For the shared plane the kernel
// verifies one with the same features once.
func programOf(t testing.TB, p *xdp.Unattached) *ebpf.Program {
	t.Helper()
	if p == shared.plane && !p.Programs.Suits() {
		needs := p.Programs.Needs()
		if shared.programs[needs] == nil {
			compiled, err := p.Programs.Compile(needs)
			must(t, err)
			shared.programs[needs] = compiled
		}
		next, err := shared.programs[needs].Clone()
		if err == nil {
			err = p.Programs.Use(next, needs)
		}
		must(t, err)
	}
	program, err := p.Program()
	must(t, err)
	return program
}

// empty removes services, records and limits from a plane.
func empty(p *xdp.Unattached) error {
	if err := p.Prune(context.Background(), nil); err != nil {
		return err
	}
	// In short mode features stay, until one program has nearly all: an emulated processor takes
	// seconds to verify one.
	for p.Programs.Needs() != 0 && !testing.Short() { // the test has counted features
		p.Programs.Recount(p.Programs.Needs(), 0)
	}
	c := testConfig("", testCapacity, nil)
	if err := p.Tables.SetTunnels(c.TunnelEnds, c.TunnelPeers); err != nil {
		return err
	}
	for _, sessions := range table.SessionTables(p.Tables) {
		var keys []uint64
		sessions.Each(func(key uint64, _ *table.BalancerNatSession) { keys = append(keys, key) })
		for _, key := range keys {
			sessions.Delete(key)
		}
	}
	for name, m := range p.Tables.ByName {
		var err error
		switch {
		case m.Type() == ebpf.LRUHash:
			err = deleteAll(m)
		case slices.Contains([]string{"rates", "lookups", "mtu_answers"}, name):
			err = zero(m)
		}
		if err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	return nil
}

// deleteAll deletes the elements of a hash table.
func deleteAll(m *ebpf.Map) error {
	var keys [][]byte
	it := m.Iterate()
	for key, value := []byte(nil), []byte(nil); it.Next(&key, &value); {
		keys = append(keys, slices.Clone(key))
	}
	for _, key := range keys {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return it.Err()
}

// zero zeroes the elements of an array.
func zero(m *ebpf.Map) error {
	var value any = make([]byte, m.ValueSize())
	if m.Type() == ebpf.PerCPUArray {
		value = slices.Repeat([][]byte{make([]byte, m.ValueSize())}, ebpf.MustPossibleCPU())
	}
	for key := range m.MaxEntries() {
		if err := m.Put(key, value); err != nil {
			return err
		}
	}
	return nil
}

// One plane, with one program, passes the suite in each mode: most time goes into making
// tables and verifying programs. Other tests have programs with single features.
func TestContract(t *testing.T) {
	hops := newStaticHops()
	p := openTestPlane(t, testPins(t), hops) // packets are under way while tables change
	hops.lost[dataplanetest.Unusable] = true
	p.Programs.Recount(0, program.AllFeatures)
	for _, forward := range xdp.Limits().Forwards {
		t.Run(forward.String(), func(t *testing.T) {
			dataplanetest.RunContract(t, dataplanetest.Harness{
				New: func(t *testing.T) dataplane.DataPlane {
					must(t, p.Prune(t.Context(), nil))
					return p
				},
				Limits: xdp.Limits(), Forward: forward, MAC: macOf,
				Complete: func(backends []lb.Backend) []lb.Backend { return reached(forward, backends) },
				Probe: func(t *testing.T, _ dataplane.DataPlane, vip lb.VIP, client netip.AddrPort, backends []lb.Backend) (lb.BackendID, bool) {
					if forward.Translates() {
						endAllSessions(t, p) // a SYN of the same client is a new flow
					}
					return chosen(t, p, vip, client, backends)
				},
			})
		})
	}
}

// reached adds the fields that a mode needs to backends: each
// is behind a tunnel end point of the same address.
func reached(forward lb.Forward, backends []lb.Backend) []lb.Backend {
	backends = slices.Clone(backends)
	if overlay := forward.Overlay(); overlay != lb.SegmentUnset {
		for i := range backends {
			b := &backends[i]
			b.TunnelEnd, b.MAC, b.Segment = b.Address, segmentMAC, lb.Segment{Type: overlay, ID: 7}
		}
	}
	return backends
}

// chosen finds the backend to which a flow's packet is sent by the MAC address
// on the frame that comes out.
func chosen(t *testing.T, p *xdp.Unattached, vip lb.VIP, client netip.AddrPort, backends []lb.Backend) (lb.BackendID, bool) {
	t.Helper()
	verdict, frame := run(t, p, flowPacket(vip, client))
	return receiver(t, verdict, frame, vip, backends)
}

// receiver is the backend that a program's frame is for, if it is sent.
func receiver(t *testing.T, verdict uint32, frame []byte, vip lb.VIP, backends []lb.Backend) (lb.BackendID, bool) {
	t.Helper()
	if verdict != xdpTX {
		return lb.BackendID{}, false
	}
	for _, b := range backends {
		if lb.MAC(frame[:6]) == macOf(b.Address) {
			return netip.AddrPortFrom(b.Address, vip.Port), true
		}
	}
	t.Fatalf("%s: frame for an unknown backend: % x", vip, frame[:14])
	return lb.BackendID{}, false
}
