// SPDX-License-Identifier: Apache-2.0

package podroute

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// enterNode puts the test's thread into a network namespace of its own, which ends with it,
// with a link to each of two pods, as the network plugin "ptp" makes them.
func enterNode(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for n := 2; n <= 3; n++ {
		name := fmt.Sprintf("veth%d", n)
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}))
		for _, end := range []string{name + "p", name} {
			must(t, netlink.LinkSetUp(link(t, end)))
		}
		for own, pod := range map[string]string{"10.244.1.1/32": "10.244.1.%d/32", "fd44::1/128": "fd44::%d/128"} {
			address, err := netlink.ParseAddr(own)
			must(t, err)
			address.Flags = unix.IFA_F_NODAD
			must(t, netlink.AddrAdd(link(t, name), address))
			must(t, netlink.RouteAdd(&netlink.Route{
				LinkIndex: link(t, name).Attrs().Index, Dst: ipNet(netip.MustParsePrefix(fmt.Sprintf(pod, n))),
			}))
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must(t, err)
	return l
}

// leads parses for example "10.1.1.0/24 10.244.1.2 10.244.1.3".
func leads(text string) route {
	fields := strings.Fields(text)
	r := route{prefix: netip.MustParsePrefix(fields[0])}
	for _, via := range fields[1:] {
		r.via = append(r.via, netip.MustParseAddr(via))
	}
	return r
}

// installed are the routes of this package in the kernel, in the form of leads.
func installed(t *testing.T) (all []string) {
	t.Helper()
	present, err := list()
	must(t, err)
	for i := range present {
		r := &present[i]
		hops := []string{r.Gw.String()}
		if len(r.MultiPath) > 0 {
			hops = nil
			for _, hop := range r.MultiPath {
				hops = append(hops, hop.Gw.String())
			}
		}
		all = append(all, prefixOf(r).String()+" "+strings.Join(hops, " "))
	}
	slices.Sort(all)
	return all
}

// The kernel has the routes of the latest plan, whatever it had before, and keeps others.
func TestTable(t *testing.T) {
	enterNode(t)
	other := netlink.Route{LinkIndex: link(t, "veth2").Attrs().Index, Dst: ipNet(netip.MustParsePrefix("10.9.0.0/16"))}
	must(t, netlink.RouteAdd(&other))
	for _, plan := range [][]string{
		{"10.1.1.0/24 10.244.1.2", "fd00:10::/64 fd44::2"},
		{"10.1.1.0/24 10.244.1.2", "fd00:10::/64 fd44::2"},
		{"10.1.1.0/24 10.244.1.2 10.244.1.3", "10.1.2.0/24 10.244.1.3", "fd00:10::/64 fd44::2 fd44::3"},
		{"10.1.1.0/24 10.244.1.3", "10.1.2.0/24 10.244.1.3", "fd00:10::/64 fd44::3"},
		{"10.1.2.0/24 10.244.1.2"},
	} {
		var routes []route
		for _, text := range plan {
			routes = append(routes, leads(text))
		}
		if failed, err := install(routes); err != nil || len(failed) > 0 {
			t.Fatalf("%v failed: %v", failed, err)
		}
		must(t, removeOthers(routes))
		if got := installed(t); !slices.Equal(got, plan) {
			t.Errorf("%q, want %q", got, plan)
		}
	}
	if got, err := routed(); err != nil || fmt.Sprint(got) != "[10.1.2.0/24]" {
		t.Errorf("prefixes %v, error %v", got, err)
	}
	if failed, err := install([]route{leads("10.1.1.0/24 192.0.2.1"), leads("10.1.3.0/24 10.244.1.2")}); err == nil || fmt.Sprint(failed) != "[10.1.1.0/24]" {
		t.Errorf("a route by way of a pod of another node: %v failed: %v", failed, err)
	}
	if got := installed(t); fmt.Sprint(got) != "[10.1.2.0/24 10.244.1.2 10.1.3.0/24 10.244.1.2]" {
		t.Errorf("%q", got)
	}
	must(t, netlink.LinkDel(link(t, "veth2"))) // as when the pod ends
	must(t, Remove())
	if got := installed(t); len(got) > 0 {
		t.Errorf("%q are left", got)
	}
}

// No route leads the node's own addresses, or its next hops, to a pod.
func TestNodeAddresses(t *testing.T) {
	enterNode(t)
	gateway := netlink.Route{
		LinkIndex: link(t, "veth2").Attrs().Index, Dst: ipNet(netip.MustParsePrefix("10.9.0.0/16")),
		Gw: net.ParseIP("10.8.0.1"), Flags: unix.RTNH_F_ONLINK,
	}
	must(t, netlink.RouteAdd(&gateway))
	own := leads("10.1.1.0/24 10.244.1.2")
	must(t, own.install())
	reserved, err := nodeAddresses()
	must(t, err)
	routes, refused, err := permitted([]route{
		own, leads("0.0.0.0/1 10.244.1.2"), leads("10.244.1.0/30 10.244.1.2"), leads("10.8.0.0/24 10.244.1.2"), leads("fd44::/64 fd44::2"),
	}, reserved)
	if len(routes) != 1 || routes[0].prefix != own.prefix || fmt.Sprint(refused) != "[0.0.0.0/1 10.244.1.0/30 10.8.0.0/24 fd44::/64]" {
		t.Errorf("routes %v, refused %v", routes, refused)
	}
	if err == nil || !strings.Contains(err.Error(), "route 10.8.0.0/24: refused, as 10.8.0.1 is an address or a next hop of this node") {
		t.Errorf("error %v", err)
	}
}
