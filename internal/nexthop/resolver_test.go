// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
)

// family has the addresses of the tests for one family.
type family struct {
	name          string
	local, remote string // on eth0
	free, unused  string // addresses on eth0 that no machine has
	elsewhere     string // a network that is not on eth0
}

// forFamilies runs a test for both families, each with a wire of its own and a resolver.
func forFamilies(t *testing.T, test func(*testing.T, family, *wire, *Resolver)) {
	for _, f := range []family{
		{"IPv4", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.9.0.0/24"},
		{"IPv6", "fd00:0::1", "fd00:0::2", "fd00:0::3", "fd00:0::4", "fd09::/64"},
	} {
		t.Run(f.name, func(t *testing.T) {
			w := newWire(t)
			test(t, f, w, w.resolver(t))
		})
	}
}

func host(address string) string { return fmt.Sprintf("%s/%d", address, ip(address).BitLen()) }

// within returns the seventh address of a network.
func within(prefix string) string {
	a := netip.MustParsePrefix(prefix).Addr().AsSlice()
	a[len(a)-1] = 7
	return addressOf(a).String()
}

func TestResolveByProbing(t *testing.T) {
	forFamilies(t, func(t *testing.T, f family, w *wire, r *Resolver) {
		eth0 := w.balancer.link(t, "eth0").Attrs()
		want := Hop{
			Interface: "eth0", Index: eth0.Index, MTU: 1500,
			Source: lb.MAC(eth0.HardwareAddr), Destination: lb.MAC(w.peer.mac(t, "eth0")),
		}
		target := Target{Address: ip(f.remote), OnLink: true}
		if got := awaitHop(t, r, target); got != want {
			t.Errorf("on link: got %+v, want %+v", got, want)
		}
		target.OnLink, want.Local = false, ip(f.local)
		if got := awaitHop(t, r, target); got != want {
			t.Errorf("tunnel: got %+v, want %+v", got, want)
		}
		target.MAC, want.Destination = macGiven, macGiven
		if got := awaitHop(t, r, target); got != want {
			t.Errorf("given MAC: got %+v, want %+v", got, want)
		}
	})
}

func TestResolveErrors(t *testing.T) {
	forFamilies(t, func(t *testing.T, f family, w *wire, r *Resolver) {
		nowhere, other := ip("192.0.2.1"), ip("10.0.1.2")
		if f.name == "IPv6" {
			nowhere, other = ip("2001:db8::1"), ip("fd00:1::2")
		}
		for kind, says := range map[int]string{
			unix.RTN_BLACKHOLE: "is a blackhole", unix.RTN_UNREACHABLE: "is unreachable", unix.RTN_PROHIBIT: "is prohibited",
		} {
			refused := &netlink.Route{Dst: network(f.elsewhere), Type: kind}
			check(t, w.balancer.RouteAdd(refused))
			a := within(f.elsewhere)
			awaitError(t, r, Target{Address: ip(a)}, "route to "+a+" "+says)
			check(t, w.balancer.RouteDel(refused))
		}
		awaitError(t, r, Target{Address: nowhere}, "no route to "+nowhere.String())
		awaitError(t, r, Target{Address: ip(f.local)}, ip(f.local).String()+" is an address of this machine")
		awaitError(t, r, Target{Address: other}, "route leads through eth1, which is not among node.interfaces [eth0]")
		awaitError(t, r, Target{Address: ip(f.free), OnLink: true}, "neighbour "+ip(f.free).String()+" on eth0 is unresolved")

		got := r.Follow(vipOf(1), []Target{{Address: nowhere, OnLink: true, MAC: macGiven}})[0]
		if got.Err != nil || got.Hop.Interface != "eth0" || got.Hop.Destination != macGiven {
			t.Errorf("given MAC without a route: %+v", got)
		}
	})
}

func TestMACChange(t *testing.T) {
	forFamilies(t, func(t *testing.T, f family, w *wire, r *Resolver) {
		target := Target{Address: ip(f.remote), OnLink: true}
		awaitHop(t, r, target)
		start := time.Now()
		check(t, w.peer.LinkSetHardwareAddr(w.peer.link(t, "eth0"), net.HardwareAddr{2, 0, 0, 0, 9, 8}))
		awaitResult(t, r, target, func(got Result) bool { return got.Err == nil && got.Hop.Destination == lb.MAC{2, 0, 0, 0, 9, 8} })
		t.Logf("the peer's new MAC was known after %s", time.Since(start))

		start = time.Now()
		check(t, w.balancer.LinkSetHardwareAddr(w.balancer.link(t, "eth0"), net.HardwareAddr(macGiven[:])))
		awaitResult(t, r, target, func(got Result) bool { return got.Err == nil && got.Hop.Source == macGiven })
		t.Logf("the own new MAC was known after %s", time.Since(start))
	})
}

func TestNeighbourReturns(t *testing.T) {
	forFamilies(t, func(t *testing.T, f family, w *wire, r *Resolver) {
		w.peer.address(t, "eth0", host(f.free))
		target := Target{Address: ip(f.free), OnLink: true}
		awaitHop(t, r, target)

		gone := &netlink.Addr{IPNet: network(host(f.free))}
		check(t, w.peer.AddrDel(w.peer.link(t, "eth0"), gone))
		check(t, w.balancer.NeighDel(w.neighbour(t, f.free)))
		awaitError(t, r, target, "neighbour "+ip(f.free).String()+" on eth0 is unresolved")
		w.peer.address(t, "eth0", host(f.free))
		awaitHop(t, r, target)
	})
}

func (w *wire) neighbour(t *testing.T, address string) *netlink.Neigh {
	t.Helper()
	for _, n := range must(w.balancer.NeighList(w.balancer.link(t, "eth0").Attrs().Index, 0))(t) {
		if n.IP.Equal(net.ParseIP(address)) {
			return &n
		}
	}
	t.Fatalf("no neighbour %s", address)
	return nil
}

func TestManagedNeighbours(t *testing.T) {
	forFamilies(t, func(t *testing.T, f family, w *wire, r *Resolver) {
		permanent := &netlink.Neigh{
			LinkIndex: w.balancer.link(t, "eth0").Attrs().Index, IP: net.ParseIP(f.free),
			State: unix.NUD_PERMANENT, HardwareAddr: net.HardwareAddr(macGiven[:]),
		}
		check(t, w.balancer.NeighAdd(permanent))
		targets := []Target{{Address: ip(f.remote)}, {Address: ip(f.free)}}
		r.Follow(vipOf(2), targets)
		awaitHop(t, r, targets[0])
		if n := w.neighbour(t, f.remote); n.FlagsExt&netlink.NTF_EXT_MANAGED == 0 {
			t.Errorf("the neighbour isn't managed: %+v", n)
		}
		r.Forget(vipOf(1))
		if n := w.neighbour(t, f.remote); n.FlagsExt&netlink.NTF_EXT_MANAGED == 0 {
			t.Errorf("a neighbour that is still followed isn't managed: %+v", n)
		}
		r.Forget(vipOf(2))
		n := w.neighbour(t, f.remote)
		if n.FlagsExt&netlink.NTF_EXT_MANAGED != 0 || !slices.Equal(n.HardwareAddr, w.peer.mac(t, "eth0")) {
			t.Errorf("the neighbour that was given back: %+v", n)
		}
		if n := w.neighbour(t, f.free); n.State != unix.NUD_PERMANENT || !slices.Equal(n.HardwareAddr, permanent.HardwareAddr) {
			t.Errorf("the permanent neighbour became %+v", n)
		}
	})
}

// A process that was killed leaves managed neighbours; the next one gives them
// back.
func TestManagedNeighboursAfterRestart(t *testing.T) {
	w := newWire(t)
	first, second := w.resolver(t), w.resolver(t)
	target := Target{Address: ip("10.0.0.2")}
	awaitHop(t, first, target)
	awaitHop(t, second, target)
	second.Forget(vipOf(1))
	// The first one, which lives in this test, takes it back.
	check(t, second.Close())
	deadline := time.Now().Add(await.Patience)
	for w.neighbour(t, "10.0.0.2").FlagsExt&netlink.NTF_EXT_MANAGED == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the neighbour isn't managed again")
		}
		if got := first.Follow(vipOf(1), []Target{target})[0]; got.Err != nil {
			t.Fatalf("unreached while it changes hands: %v", got.Err)
		}
	}
	check(t, first.Close())
	if n := w.neighbour(t, "10.0.0.2"); n.FlagsExt&netlink.NTF_EXT_MANAGED != 0 {
		t.Errorf("after the last Close: %+v", n)
	}
	if got := first.Follow(vipOf(1), []Target{target}); got[0].Err == nil {
		t.Errorf("after Close: %+v", got)
	}
}

func TestRouteMovesToGateway(t *testing.T) {
	forFamilies(t, func(t *testing.T, f family, w *wire, r *Resolver) {
		eth0 := w.balancer.link(t, "eth0").Attrs().Index
		backend := ip(within(f.elsewhere))
		w.peer.address(t, "eth0", host(backend.String()))
		l2, tunnel := Target{Address: backend, OnLink: true}, Target{Address: backend}
		route := &netlink.Route{Dst: network(f.elsewhere), LinkIndex: eth0, Scope: netlink.SCOPE_LINK}
		check(t, w.balancer.RouteAdd(route))
		awaitHop(t, r, l2)

		route.Gw, route.Scope, route.MTU = net.ParseIP(f.remote), netlink.SCOPE_UNIVERSE, 1400
		check(t, w.balancer.RouteReplace(route))
		awaitError(t, r, l2, fmt.Sprintf("%s is behind gateway %s: l2dsr needs it directly connected", backend, ip(f.remote)))
		got := awaitHop(t, r, tunnel)
		if got.Destination != lb.MAC(w.peer.mac(t, "eth0")) || got.MTU != 1400 || got.Local != ip(f.local) {
			t.Errorf("through a gateway: %+v", got)
		}
		// A more specific route to nowhere, and its going.
		refused := &netlink.Route{Dst: network(host(backend.String())), Type: unix.RTN_BLACKHOLE}
		check(t, w.balancer.RouteAdd(refused))
		awaitError(t, r, tunnel, fmt.Sprintf("route to %s is a blackhole", backend))
		check(t, w.balancer.RouteDel(refused))
		awaitHop(t, r, tunnel)
	})
}

// The first path's gateway is silent, so that the second is taken; when the
// first answers it is.
func TestFirstUsablePath(t *testing.T) {
	forFamilies(t, func(t *testing.T, f family, w *wire, r *Resolver) {
		eth0 := w.balancer.link(t, "eth0").Attrs().Index
		check(t, w.balancer.NeighAdd(&netlink.Neigh{
			LinkIndex: eth0, IP: net.ParseIP(f.unused), State: unix.NUD_PERMANENT, HardwareAddr: net.HardwareAddr(macGiven[:]),
		}))
		check(t, w.balancer.RouteAdd(&netlink.Route{Dst: network(f.elsewhere), MultiPath: []*netlink.NexthopInfo{
			{LinkIndex: eth0, Gw: net.ParseIP(f.free)},
			{LinkIndex: eth0, Gw: net.ParseIP(f.unused)},
		}}))
		target := Target{Address: ip(within(f.elsewhere))}
		if got := awaitHop(t, r, target); got.Destination != macGiven {
			t.Errorf("got %+v", got)
		}
		w.peer.address(t, "eth0", host(f.free))
		first := lb.MAC(w.peer.mac(t, "eth0"))
		awaitResult(t, r, target, func(got Result) bool { return got.Err == nil && got.Hop.Destination == first })
	})
}

// RFC 5549: an IPv4 network behind an IPv6 gateway.
func TestIPv4ThroughIPv6Gateway(t *testing.T) {
	w := newWire(t)
	r := w.resolver(t)
	check(t, w.balancer.RouteAdd(&netlink.Route{
		Dst: network("10.9.0.0/24"), LinkIndex: w.balancer.link(t, "eth0").Attrs().Index,
		Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: net.ParseIP("fd00:0::2")},
	}))
	got := awaitHop(t, r, Target{Address: ip("10.9.0.7")})
	if got.Destination != lb.MAC(w.peer.mac(t, "eth0")) || got.Local != ip("10.0.0.1") {
		t.Errorf("got %+v", got)
	}
	awaitError(t, r, Target{Address: ip("10.9.0.7"), OnLink: true},
		"10.9.0.7 is behind gateway fd00::2: l2dsr needs it directly connected")
}

func TestInterfaceDownAndUp(t *testing.T) {
	forFamilies(t, func(t *testing.T, f family, w *wire, r *Resolver) {
		target := Target{Address: ip(f.remote), OnLink: true}
		awaitHop(t, r, target)

		check(t, w.peer.LinkSetDown(w.peer.link(t, "eth0")))
		awaitError(t, r, target, "interface eth0 is down")
		w.restore(t, w.peer, f.remote)
		awaitHop(t, r, target)

		check(t, w.balancer.LinkSetDown(w.balancer.link(t, "eth0")))
		awaitError(t, r, target, fmt.Sprintf("no route to %s (down: eth0)", ip(f.remote)))
		w.restore(t, w.balancer, f.local)
		awaitHop(t, r, target)

		check(t, w.balancer.LinkDel(w.balancer.link(t, "eth0")))
		awaitError(t, r, target, fmt.Sprintf("no route to %s (down: eth0)", ip(f.remote)))
	})
}

// restore brings eth0 up again, with its IPv6 address, which the kernel takes
// from an interface that goes down.
func (w *wire) restore(t *testing.T, ns *namespace, address string) {
	t.Helper()
	ns.up(t, "eth0")
	if ip(address).Is6() {
		check(t, ns.AddrReplace(ns.link(t, "eth0"), &netlink.Addr{IPNet: network(address + "/64"), Flags: unix.IFA_F_NODAD}))
	}
}

func TestSourceAddressChange(t *testing.T) {
	w := newWire(t)
	r := w.resolver(t)
	target := Target{Address: ip("fd00:0::2")}
	if got := awaitHop(t, r, target); got.Local != ip("fd00:0::1") {
		t.Fatalf("got %+v", got)
	}
	w.balancer.address(t, "eth0", "fd00:0::9/64")
	check(t, w.balancer.AddrDel(w.balancer.link(t, "eth0"), &netlink.Addr{IPNet: network("fd00:0::1/64")}))
	awaitResult(t, r, target, func(got Result) bool { return got.Hop.Local == ip("fd00:0::9") })
}

// Events are lost while the Resolver is held up; it notices and reads all again.
func TestLostEvents(t *testing.T) {
	w := newWire(t)
	r := w.resolver(t)
	target := Target{Address: ip("10.0.0.2"), OnLink: true}
	awaitHop(t, r, target)
	check(t, r.events.conn.Control(func(fd uintptr) {
		check(t, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096))
	}))
	r.mu.Lock()
	lo := w.balancer.link(t, "lo")
	for i := range 200 {
		check(t, w.balancer.RouteAdd(&netlink.Route{
			Dst: network(fmt.Sprintf("172.16.%d.0/24", i)), LinkIndex: lo.Attrs().Index, Scope: netlink.SCOPE_LINK,
		}))
	}
	check(t, w.balancer.LinkSetHardwareAddr(w.balancer.link(t, "eth0"), net.HardwareAddr(macGiven[:])))
	r.mu.Unlock()
	awaitResult(t, r, target, func(got Result) bool { return got.Err == nil && got.Hop.Source == macGiven })
}

// Half of the targets are on the link, with permanent neighbours because the
// kernel's tables are small; the others are behind one gateway.
func TestManyTargets(t *testing.T) {
	const n = 5000
	w := newWire(t)
	eth0 := w.balancer.link(t, "eth0").Attrs().Index
	for _, prefix := range []string{"10.16.0.0/16", "10.17.0.0/16"} {
		route := &netlink.Route{Dst: network(prefix), LinkIndex: eth0, Scope: netlink.SCOPE_LINK}
		if prefix == "10.17.0.0/16" {
			route.Gw, route.Scope = net.ParseIP("10.0.0.2"), netlink.SCOPE_UNIVERSE
		}
		check(t, w.balancer.RouteAdd(route))
	}
	targets := make([]Target, n)
	for i := range targets {
		a := [4]byte{10, 16 + byte(i%2)}
		binary.BigEndian.PutUint16(a[2:], uint16(i+256))
		targets[i] = Target{Address: netip.AddrFrom4(a), OnLink: i%2 == 0}
		if targets[i].OnLink {
			check(t, w.balancer.NeighAdd(&netlink.Neigh{
				LinkIndex: eth0, IP: a[:], State: unix.NUD_PERMANENT, HardwareAddr: net.HardwareAddr(macBackend[:]),
			}))
		}
	}
	r := w.resolver(t)
	awaitHop(t, r, Target{Address: ip("10.0.0.2")}) // the gateway
	changed := notified(r)
	vip := vipOf(2)
	reached := func(mtu int) bool {
		return !slices.ContainsFunc(r.Follow(vip, targets), func(got Result) bool {
			return got.Err != nil || got.Hop.MTU != mtu
		})
	}
	start := time.Now()
	if !reached(1500) {
		t.Error("not all targets are reached")
	}
	t.Logf("%d targets: %s each", n, time.Since(start)/n)
	start = time.Now()
	r.Follow(vip, targets)
	t.Logf("again: %s each", time.Since(start)/n)

	start = time.Now()
	check(t, w.balancer.LinkSetMTU(w.balancer.link(t, "eth0"), 1400))
	for deadline := time.After(await.Patience); !reached(1400); {
		select {
		case <-changed:
		case <-deadline:
			t.Fatal("not all targets are reached")
		}
	}
	t.Logf("all decided again after %s", time.Since(start))
}
