// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
)

// The hosts of a lab: near and next are on one link, far is behind a router.
const (
	near4, near6 = "10.0.9.1", "fd00:9::1"
	next4, next6 = "10.0.9.2", "fd00:9::2"
	far4, far6   = "10.0.8.1", "fd00:8::1"
)

var labs atomic.Uint32

// newLab brings up a lab of two neighbours on a switch and a third host behind
// a router, for a test that runs in parallel with others; it is taken down when the test ends.
func newLab(t *testing.T) *netlab.Lab {
	t.Helper()
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	lab, err := netlab.Labs{Dir: t.TempDir()}.Up(t.Context(), fmt.Sprintf("bfd%d-%d", os.Getpid(), labs.Add(1)), topology())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return lab
}

func topology() netlab.Topology {
	host := func(name string, role netlab.Role, interfaces ...netlab.Interface) netlab.Host {
		return netlab.Host{Name: name, Role: role, Interfaces: interfaces}
	}
	device := func(name string, addresses ...string) netlab.Interface {
		i := netlab.Interface{Name: name}
		for _, a := range addresses {
			i.Addresses = append(i.Addresses, netip.MustParsePrefix(a))
		}
		return i
	}
	link := func(a, b string) netlab.Link {
		return netlab.Link{A: netlab.End{Host: a, Interface: "eth0"}, B: netlab.End{Host: "switch", Interface: b}}
	}
	via := func(h netlab.Host, to, gateway string) netlab.Host {
		h.Routes = append(h.Routes, netlab.Route{
			Destination: netip.MustParsePrefix(to), Gateways: []netip.Addr{netip.MustParseAddr(gateway)},
		})
		return h
	}
	near := host("near", netlab.Client, device("eth0", near4+"/24", near6+"/64"), device("eth1", "10.0.7.1/24", "fd00:7::1/64"))
	far := host("far", netlab.Client, device("eth0", far4+"/24", far6+"/64"))
	return netlab.Topology{
		Name: "bfd",
		Hosts: []netlab.Host{
			via(via(near, "10.0.8.0/24", "10.0.9.254"), "fd00:8::/64", "fd00:9::fe"),
			host("next", netlab.Client, device("eth0", next4+"/24", next6+"/64")),
			host("router", netlab.Router, device("eth0", "10.0.9.254/24", "fd00:9::fe/64"), device("eth1", "10.0.8.254/24", "fd00:8::fe/64")),
			via(via(far, "10.0.9.0/24", "10.0.8.254"), "fd00:9::/64", "fd00:8::fe"),
			// A pod on near, with the addresses of next.
			via(via(host("pod", netlab.Client, device("eth0", "10.0.7.2/24", next4+"/32", "fd00:7::2/64", next6+"/128")),
				near4+"/32", "10.0.7.1"), near6+"/128", "fd00:7::1"),
			host("switch", netlab.Switch, device("near"), device("next"), device("router")),
		},
		Links: []netlab.Link{
			link("near", "near"), link("next", "next"), link("router", "router"),
			{A: netlab.End{Host: "pod", Interface: "eth0"}, B: netlab.End{Host: "near", Interface: "eth1"}},
			{A: netlab.End{Host: "far", Interface: "eth0"}, B: netlab.End{Host: "router", Interface: "eth1"}},
		},
	}
}

// plug joins a host to the switch or cuts it off, without its noticing.
func plug(t *testing.T, lab *netlab.Lab, host string, in bool) {
	t.Helper()
	err := lab.Do("switch", func() error {
		port, err := netlink.LinkByName(host)
		if err != nil {
			return err
		}
		if !in {
			return netlink.LinkSetNoMaster(port)
		}
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(port, bridge)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// to is a peer on the same link with the usual parameters.
func to(address string) Peer {
	return Peer{Address: netip.MustParseAddr(address), BFD: bgp.DefaultBFD}
}

// over is one behind routers.
func over(address string) Peer {
	p := to(address)
	p.Path = bgp.Multihop
	return p
}
