// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// host is in a test's own lab, with an interface in 192.0.2.0/24 and 2001:db8::/64.
type host struct{ lab *Lab }

func newHost(t *testing.T) host {
	t.Helper()
	own := Interface{Name: eth0, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")}}
	return host{bringUp(t, newLabs(t), Topology{
		Hosts: []Host{
			{Name: "host", Role: Client, Interfaces: []Interface{own}},
			{Name: "peer", Role: Client, Interfaces: []Interface{{Name: eth0}}},
		},
		Links: []Link{{A: End{"host", eth0}, B: End{"peer", eth0}}},
	})}
}

// ip runs ip(8) in the namespace.
func (h host) ip(t *testing.T, line string) {
	t.Helper()
	if _, err := h.lab.Run(t.Context(), "host", append([]string{"ip"}, strings.Fields(line)...)...); err != nil {
		t.Fatal(err)
	}
}

func (h host) watch(t *testing.T, prefixes ...netip.Prefix) *Routes {
	t.Helper()
	r, err := h.lab.FollowRoutes("host", prefixes...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

var (
	vip4 = netip.MustParsePrefix("10.1.1.1/32")
	vip6 = netip.MustParsePrefix("fd00:10:1:1::1/128")
)

func via4(ends ...string) Hops { return viaNetwork("192.0.2.", ends) }

func via6(ends ...string) Hops { return viaNetwork("2001:db8::", ends) }

func viaNetwork(network string, ends []string) Hops {
	var gateways []netip.Addr
	for _, end := range ends {
		gateways = append(gateways, netip.MustParseAddr(network+end))
	}
	return EqualHops(gateways...)
}

// await fails unless the prefix gets these next hops.
func await(t *testing.T, w *Routes, prefix netip.Prefix, want Hops) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := w.Await(ctx, map[netip.Prefix]Hops{prefix: want}); err != nil {
		t.Fatal(err)
	}
}

// routeStep is a command of ip(8), and the next hops that a prefix gets by it.
type routeStep struct {
	command string
	prefix  netip.Prefix
	want    Hops
}

func (h host) follow(t *testing.T, w *Routes, steps []routeStep) {
	t.Helper()
	for _, s := range steps {
		h.ip(t, s.command)
		await(t, w, s.prefix, s.want)
	}
}

// Routes that contain their next hops, as BIRD writes them.
func TestWatchMultipath(t *testing.T) {
	h := newHost(t)
	h.ip(t, "route add 10.1.1.1 metric 32 nexthop via 192.0.2.11 nexthop via 192.0.2.12")
	w := h.watch(t, vip4, vip6)
	await(t, w, vip4, via4("11", "12"))
	await(t, w, vip6, nil)
	h.follow(t, w, []routeStep{
		{"route replace 10.1.1.1 metric 32 nexthop via 192.0.2.13 nexthop via 192.0.2.12 nexthop via 192.0.2.11", vip4, via4("11", "12", "13")},
		{"route replace 10.1.1.1 metric 32 via 192.0.2.12", vip4, via4("12")},
		{"route add 10.1.1.1 metric 5 via 192.0.2.14", vip4, via4("14")},
		{"route delete 10.1.1.1 metric 5", vip4, via4("12")},
		{"route delete 10.1.1.1", vip4, nil},
		{"-6 route add fd00:10:1:1::1 nexthop via 2001:db8::11 nexthop via 2001:db8::12", vip6, via6("11", "12")},
		{"-6 route append fd00:10:1:1::1 via 2001:db8::13", vip6, via6("11", "12", "13")},
		{"-6 route delete fd00:10:1:1::1 via 2001:db8::12", vip6, via6("11", "13")},
		{"-6 route replace fd00:10:1:1::1 nexthop via 2001:db8::12 nexthop via 2001:db8::13", vip6, via6("12", "13")},
		{"-6 route delete fd00:10:1:1::1", vip6, nil},
		{"route add 10.1.1.1 via inet6 2001:db8::11 dev eth0", vip4, via6("11")},
	})
}

// Routes with a nexthop object, as FRR writes them.
func TestWatchNexthopObjects(t *testing.T) {
	h := newHost(t)
	for _, n := range []string{"11", "12", "13"} {
		h.ip(t, "nexthop add id "+n+" via 192.0.2."+n+" dev eth0")
		h.ip(t, "nexthop add id 1"+n+" via 2001:db8::"+n+" dev eth0")
	}
	h.ip(t, "nexthop add id 20 group 11/12")
	h.ip(t, "route add 10.1.1.1 nhid 20 metric 20")
	w := h.watch(t, vip4, vip6)
	await(t, w, vip4, via4("11", "12"))
	h.follow(t, w, []routeStep{
		{"nexthop add id 21 group 11/12/13", vip4, via4("11", "12")},
		{"route replace 10.1.1.1 nhid 21 metric 20", vip4, via4("11", "12", "13")},
		{"nexthop replace id 21 group 12/13", vip4, via4("12", "13")},
		{"nexthop delete id 12", vip4, via4("13")},
		{"route replace 10.1.1.1 nhid 11 metric 20", vip4, via4("11")},
		{"nexthop replace id 11 via 192.0.2.14 dev eth0", vip4, via4("14")},
		{"nexthop delete id 11", vip4, nil},
		{"nexthop add id 30 group 111/112", vip6, nil},
		{"-6 route add fd00:10:1:1::1 nhid 30", vip6, via6("11", "12")},
		{"nexthop replace id 30 group 111/112/113", vip6, via6("11", "12", "13")},
		{"nexthop delete id 113", vip6, via6("11", "12")},
		{"nexthop delete id 30", vip6, nil},
	})
}

// Each state is an event, in the order of time, also one that lasts only a moment.
func TestRouteEvents(t *testing.T) {
	h := newHost(t)
	w := h.watch(t, vip4)
	before := time.Now()
	h.ip(t, "route add 10.1.1.1 via 192.0.2.11")
	h.ip(t, "route add 10.9.9.9 via 192.0.2.11")
	h.ip(t, "route delete 10.1.1.1")
	h.ip(t, "route add 10.1.1.1 nexthop via 192.0.2.11 weight 3 nexthop via 192.0.2.12")
	heavy := Hops{{Gateway: via4("11")[0].Gateway, Weight: 3}, via4("12")[0]}
	await(t, w, vip4, heavy)
	events, err := w.Take()
	if err != nil {
		t.Fatal(err)
	}
	want := []Hops{via4("11"), nil, heavy}
	if len(events) != len(want) {
		t.Fatalf("events %v, want %v", events, want)
	}
	for i, e := range events {
		if e.Prefix != vip4 || !slices.Equal(e.Hops, want[i]) || e.At.Before(before) {
			t.Errorf("event %d: %s at %s, want %s", i, e.Hops, e.At, want[i])
		}
		before = e.At
	}
	if events, _ := w.Take(); len(events) != 0 {
		t.Errorf("events %v come twice", events)
	}
}

func TestRoutesAwaitNamesDifferences(t *testing.T) {
	w := newHost(t).watch(t, vip4)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := w.Await(ctx, map[netip.Prefix]Hops{vip4: via4("11")})
	if err == nil || !strings.Contains(err.Error(), "10.1.1.1/32: no route, want via 192.0.2.11 weight 1") {
		t.Errorf("error %v", err)
	}
}
