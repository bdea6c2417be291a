// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/contract"
	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
	"fairlead.io/fairlead/internal/lb"
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
	// pending are those of which the kernel hasn't heard yet.
	pending map[netip.Addr]bool
	// beyond are the machines behind gateways.
	beyond map[netip.Addr]bool
	// handover, if not 0, is a device by which the kernel sends, not XDP.
	handover int
	stale    chan lb.VIP
}

func newStaticHops() *staticHops {
	return &staticHops{
		source: ownMAC, index: testIndex, mtu: 1500, stale: make(chan lb.VIP),
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
		relay := t.Relay.IsValid() && !h.beyond[t.Relay]
		if relay {
			t = nexthop.Target{Address: t.Relay, OnLink: true, MAC: t.MAC}
		}
		if h.lost[t.Address] {
			results[i].Err = errLost
			continue
		}
		if h.pending[t.Address] {
			results[i].Err = nexthop.ErrPending
			continue
		}
		hop := nexthop.Hop{Interface: "lo", Index: h.index, Source: h.source, Destination: macOf(t.Address), VLAN: h.vlan, MTU: h.mtu, Relay: relay}
		if t.Handover && h.handover != 0 {
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
func (h *staticHops) Changed() <-chan lb.VIP   { return h.stale }
func (h *staticHops) Close() error             { return nil }

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
}

// testPins returns a pin directory of the test's own.
func testPins(t testing.TB) string {
	t.Helper()
	needRoot(t)
	dir := filepath.Join(bpfRoot, fmt.Sprintf("fairlead-test-%d-%d", os.Getpid(), testNumber.Add(1)))
	t.Cleanup(func() {
		if err := Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// testCapacity suffices for one service of as many backends as there can be; a
// test that opens many planes has no time for tables of the default size.
var testCapacity = Capacity{Services: 1 << 10, Backends: 1 << 17, RingEntries: 1 << 23, Flows: 1 << 12, Clients: 1 << 10, Sessions: 1 << 13}

func openTestPlane(t testing.TB, dir string, hops resolver) *Plane {
	t.Helper()
	p, err := newPlane(Config{
		PinDir: dir, Capacity: testCapacity, Seed: 1, TunnelEnds: []netip.Addr{local4, local6},
		Log: slog.New(slog.DiscardHandler), untested: true,
	}, hops)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// newTestPlane returns a plane that is attached nowhere; packets are put into
// its program by run.
func newTestPlane(t *testing.T) (*Plane, *staticHops) {
	t.Helper()
	hops := newStaticHops()
	return openTestPlane(t, testPins(t), hops), hops
}

func TestContract(t *testing.T) {
	var v4, v6 []lb.Backend
	for i := range byte(8) {
		v4 = append(v4, lb.Backend{Address: netip.AddrFrom4([4]byte{10, 0, 2, 21 + i})})
		v6 = append(v6, lb.Backend{Address: netip.AddrFrom16([16]byte{0: 0xfd, 3: 2, 15: 0x21 + i})})
	}
	unusable := lb.Backend{Address: netip.MustParseAddr("10.0.2.99")}
	for _, forward := range Limits().Forwards {
		v4, v6, unusable := reached(forward, v4), reached(forward, v6), reached(forward, []lb.Backend{unusable})[0]
		t.Run(forward.String(), func(t *testing.T) {
			contract.Run(t, contract.Harness{
				New: func(t *testing.T) dataplane.DataPlane {
					p, hops := newTestPlane(t)
					hops.lost[unusable.Address] = true
					return p
				},
				Limits: Limits(), Forward: forward, V4: v4, V6: v6, Unusable: unusable,
				Probe: func(t *testing.T, dp dataplane.DataPlane, vip lb.VIP, client netip.AddrPort) (lb.BackendID, bool) {
					p := dp.(*Plane)
					endAllSessions(t, p) // a SYN of the same client is a new flow
					return chosen(t, p, vip, client, slices.Concat(v4, v6))
				},
			})
		})
	}
}

// reached gives backends what a mode needs to know beside their addresses: each
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
func chosen(t *testing.T, p *Plane, vip lb.VIP, client netip.AddrPort, backends []lb.Backend) (lb.BackendID, bool) {
	t.Helper()
	verdict, frame := run(t, p, flowPacket(vip, client))
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
