// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/host/bpffs"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

var (
	vip4    = netip.MustParseAddr("10.1.1.1")
	vip6    = netip.MustParseAddr("fd00:10:1:1::1")
	client4 = netip.MustParseAddrPort("192.0.2.7:41000")
	client6 = netip.MustParseAddrPort("[2001:db8::7]:41000")
	errLost = errors.New("neighbour is unresolved")
)

// lossyHops reaches every backend as fixedHops does, except those that are lost.
type lossyHops struct {
	fixedHops
	lost map[netip.Addr]bool
}

func (h lossyHops) Follow(vip lb.VIP, targets []nexthop.Target) []nexthop.Result {
	results := h.fixedHops.Follow(vip, targets)
	for i, t := range targets {
		if h.lost[t.Address] {
			results[i] = nexthop.Result{Err: errLost}
		}
	}
	return results
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
}

var testNumber atomic.Int64

// testPins returns a pin directory of the test's own.
func testPins(t *testing.T) string {
	t.Helper()
	needRoot(t)
	dir := filepath.Join(bpffs.Root, fmt.Sprintf("fairlead-xdp-test-%d-%d", os.Getpid(), testNumber.Add(1)))
	t.Cleanup(func() { must(t, Remove(dir)) })
	return dir
}

func openTestPlane(t *testing.T, dir string) *Plane {
	t.Helper()
	return openPlane(t, dir, fixedHops{}, nil)
}

// openQuietPlane opens a plane whose grace periods take no time: no packet is
// under way while tables change.
func openQuietPlane(t *testing.T, dir string, hops Resolver) *Plane {
	t.Helper()
	return openPlane(t, dir, hops, func() error { return nil })
}

// openPlane opens a plane that is attached nowhere.
func openPlane(t *testing.T, dir string, hops Resolver, synchronize func() error) *Plane {
	t.Helper()
	p, err := newPlane(Config{
		PinDir: dir, Seed: 1, TunnelEnds: []netip.Addr{selfTestEnd}, TunnelPeers: []netip.Prefix{netip.MustParsePrefix("198.51.100.3/32")}, Log: slog.New(slog.DiscardHandler), test: func(program.Features) error { return nil }, Synchronize: synchronize,
		Capacity: table.Capacity{Services: 1 << 10, Backends: 1 << 12, RingEntries: 1 << 20, Flows: 1 << 16, Sources: 1 << 12, Limited: 1 << 10, Clients: 1 << 10, Sessions: 1 << 13},
	}, hops)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

func manyBackends(vip netip.Addr, n int) *lb.Service {
	svc := &lb.Service{Name: "web", VIP: lb.VIP{Address: vip, Port: 80, Protocol: lb.TCP}, Forward: lb.L2DSR, MinHealthy: 1}
	for i := range n {
		address := netip.AddrFrom4([4]byte{10, 0, byte(2 + i/250), byte(1 + i%250)})
		svc.Backends = append(svc.Backends, lb.Backend{Address: address, Port: 80, Weight: 1})
	}
	return svc
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func update(t *testing.T, p *Plane, svc *lb.Service) {
	t.Helper()
	_, err := p.Update(t.Context(), svc)
	must(t, err)
}

func remove(t *testing.T, p *Plane, vip lb.VIP) {
	t.Helper()
	must(t, p.Delete(t.Context(), vip))
}
