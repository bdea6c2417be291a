// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// weights are the next hops of a prefix in the router's kernel, and how much each
// gets.
func (r *box) weights(prefix string) map[string]int {
	_, dst, err := net.ParseCIDR(prefix)
	r.must(err)
	family := netlink.FAMILY_V4
	if dst.IP.To4() == nil {
		family = netlink.FAMILY_V6
	}
	weights := make(map[string]int)
	r.do(func() {
		routes, _ := netlink.RouteListFiltered(family, &netlink.Route{Dst: dst}, netlink.RT_FILTER_DST)
		for _, route := range routes {
			switch {
			case route.Gw != nil:
				weights[route.Gw.String()] = 1
			case route.Via != nil:
				weights[route.Via.(*netlink.Via).Addr.String()] = 1
			}
			for _, h := range route.MultiPath {
				weights[h.Gw.String()] = h.Hops + 1
			}
		}
	})
	return weights
}

// hops are the next hops of a prefix in the router's kernel.
func (r *box) hops(prefix string) []string {
	return slices.Sorted(maps.Keys(r.weights(prefix)))
}

// awaitHops waits until the router's kernel sends a prefix to these, and to none
// else.
func (r *box) awaitHops(prefix string, hops ...string) {
	r.t.Helper()
	await.True(r.t, fmt.Sprintf("%s by %v", prefix, hops), func() bool { return slices.Equal(r.hops(prefix), hops) })
}

// awaitRoutes waits until the router's kernel sends addresses to the balancer at the first place.
func (r *box) awaitRoutes(addrs ...string) {
	r.t.Helper()
	for _, text := range addrs {
		addr, hop := netip.MustParseAddr(text), balancer4
		if addr.Is6() {
			hop = balancer6
		}
		r.awaitHops(netip.PrefixFrom(addr, addr.BitLen()).String(), hop.String())
	}
}

// watch looks at prefixes in the router's kernel until the function that it returns
// is called, which fails the test if one was missing at some time. It polls each
// millisecond, as the kernel doesn't report every removal, and subscribes to changes, as
// a route may be back before the next poll.
func (r *box) watch(prefixes ...string) (kept func()) {
	r.t.Helper()
	stop, updates, lost := make(chan struct{}), make(chan netlink.RouteUpdate), make(chan []string)
	r.must(netlink.RouteSubscribeAt(r.ns, updates, stop))
	go func() {
		var missing []string
		note := func(prefix string) {
			if !slices.Contains(missing, prefix) {
				missing = append(missing, prefix)
			}
		}
		look := time.NewTicker(time.Millisecond)
		defer look.Stop()
		for {
			for _, prefix := range prefixes {
				if len(r.hops(prefix)) == 0 {
					note(prefix)
				}
			}
			select {
			case u, ok := <-updates:
				if !ok {
					lost <- missing
					return
				}
				if u.Type == unix.RTM_DELROUTE && slices.Contains(prefixes, u.Dst.String()) {
					note(u.Dst.String())
				}
			case <-look.C:
			}
		}
	}()
	return func() {
		r.t.Helper()
		close(stop)
		if lost := <-lost; len(lost) > 0 {
			r.t.Error("lost meanwhile:", lost)
		}
	}
}

// forget takes an address away from the balancer.
func (r *box) forget(addr netip.Addr) {
	r.t.Helper()
	link := r.find()
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
	r.must(err)
	for _, a := range addrs {
		if a.IP.Equal(addr.AsSlice()) {
			r.must(netlink.AddrDel(link, &a))
		}
	}
}

// forward makes the box a router without daemons.
func (r *box) forward() {
	r.t.Helper()
	r.do(func() {
		for _, setting := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			r.must(os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0))
		}
	})
}

// route adds a route in the namespace of the caller.
func (r *box) route(to string, via netip.Addr) {
	r.t.Helper()
	_, dst, err := net.ParseCIDR(to)
	r.must(err)
	r.must(netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: via.AsSlice()}))
}

// change changes the router's end of the link.
func (r *box) change(change func(netlink.Link) error) {
	r.t.Helper()
	r.do(func() { r.must(change(r.find())) })
}

// cut ends the connections with a peer's port 179 in the namespace that it is called
// in, as if they had timed out in the kernel: the other end gets a reset.
func cut(t *testing.T) {
	t.Helper()
	sockets, err := netlink.SocketDiagTCP(netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	cut := false
	for _, s := range sockets {
		if s.State != netlink.TCP_ESTABLISHED || s.ID.DestinationPort != bgp.Port && s.ID.SourcePort != bgp.Port {
			continue
		}
		err := netlink.SocketDestroy(
			&net.TCPAddr{IP: s.ID.Source, Port: int(s.ID.SourcePort)},
			&net.TCPAddr{IP: s.ID.Destination, Port: int(s.ID.DestinationPort)})
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("needs a kernel with CONFIG_INET_DIAG_DESTROY")
		}
		if err != nil {
			t.Fatal(err)
		}
		cut = true
	}
	if !cut {
		t.Fatal("no connection to cut")
	}
}

// lose keeps packets for addr, at the other end of the link, from it until the
// function that it returns is called; both in the namespace of the caller.
func (r *box) lose(addr netip.Addr) (find func()) {
	wrong := &netlink.Neigh{
		LinkIndex: r.find().Attrs().Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(),
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0x99},
	}
	r.must(netlink.NeighSet(wrong))
	return func() { r.must(netlink.NeighDel(wrong)) }
}
