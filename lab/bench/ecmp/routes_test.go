// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/lab/netlab"
)

// host is in a test's own lab, with an interface in 192.0.2.0/24 and 2001:db8::/64.
type host struct{ lab *netlab.Lab }

func newHost(t *testing.T) host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace")
	}
	own := netlab.Interface{Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")}}
	lab, err := netlab.Labs{Dir: t.TempDir()}.Up(t.Context(), "ecmp-"+strings.ToLower(rand.Text()), netlab.Topology{
		Hosts: []netlab.Host{
			{Name: "host", Role: netlab.Client, Interfaces: []netlab.Interface{own}},
			{Name: "peer", Role: netlab.Client, Interfaces: []netlab.Interface{{Name: "eth0"}}},
		},
		Links: []netlab.Link{{A: netlab.End{Host: "host", Interface: "eth0"}, B: netlab.End{Host: "peer", Interface: "eth0"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return host{lab}
}

// ip runs ip(8) in the namespace; "ip -n" would need a mount that not every
// container allows.
func (h host) ip(t *testing.T, line string) {
	t.Helper()
	h.do(t, func() error {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
		return nil
	})
}

// do runs something in the namespace.
func (h host) do(t *testing.T, work func() error) {
	t.Helper()
	if err := h.lab.Do("host", work); err != nil {
		t.Fatal(err)
	}
}

func (h host) watch(t *testing.T, prefixes ...netip.Prefix) (w *routeWatcher) {
	t.Helper()
	h.do(t, func() (err error) {
		w, err = watchRoutes(prefixes...)
		return err
	})
	t.Cleanup(w.close)
	return w
}

var (
	vip4 = netip.MustParsePrefix("10.1.1.1/32")
	vip6 = netip.MustParsePrefix("fd00:10:1:1::1/128")
)

func via4(ends ...string) hops { return viaNetwork("192.0.2.", ends) }

func via6(ends ...string) hops { return viaNetwork("2001:db8::", ends) }

func viaNetwork(network string, ends []string) hops {
	var gateways []netip.Addr
	for _, end := range ends {
		gateways = append(gateways, netip.MustParseAddr(network+end))
	}
	return equalHops(gateways...)
}

// await fails unless the prefix gets these next hops.
func await(t *testing.T, w *routeWatcher, prefix netip.Prefix, want hops) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := w.await(ctx, map[netip.Prefix]hops{prefix: want}); err != nil {
		t.Fatal(err)
	}
}

// step is a command of ip(8), and the next hops that a prefix gets by it.
type step struct {
	command string
	prefix  netip.Prefix
	want    hops
}

func (h host) follow(t *testing.T, w *routeWatcher, steps []step) {
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
	h.follow(t, w, []step{
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
	h.follow(t, w, []step{
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
	heavy := hops{{Gateway: via4("11")[0].Gateway, Weight: 3}, via4("12")[0]}
	await(t, w, vip4, heavy)
	events, err := w.take()
	if err != nil {
		t.Fatal(err)
	}
	want := []hops{via4("11"), nil, heavy}
	if len(events) != len(want) {
		t.Fatalf("events %v, want %v", events, want)
	}
	for i, e := range events {
		if e.prefix != vip4 || !e.hops.equal(want[i]) || e.at.Before(before) {
			t.Errorf("event %d: %s at %s, want %s", i, e.hops, e.at, want[i])
		}
		before = e.at
	}
	if events, _ := w.take(); len(events) != 0 {
		t.Errorf("events %v come twice", events)
	}
}

func TestRoutesAwaitNamesDifferences(t *testing.T) {
	w := newHost(t).watch(t, vip4)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := w.await(ctx, map[netip.Prefix]hops{vip4: via4("11")})
	if err == nil || !strings.Contains(err.Error(), "10.1.1.1/32: no route, want via 192.0.2.11 weight 1") {
		t.Errorf("error %v", err)
	}
}
