// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
)

// A packet to an announced address that no service takes is never left to a kernel that
// would route it back to the router. A kernel that has the address, or doesn't route,
// gets it.
func TestUnserved(t *testing.T) {
	p, _ := newTestPlane(t)
	unused4, unused6 := netip.MustParseAddr("10.200.7.7"), netip.MustParseAddr("fd00:200::7")
	other4, other6 := netip.MustParseAddr("10.201.0.1"), netip.MustParseAddr("fd00:201::1")
	in := func(s lb.Segment, vip netip.Addr, protocol lb.Protocol, port uint16) []byte {
		client := client4
		if vip.Is6() {
			client = client6
		}
		return flowPacket(lb.VIP{Address: vip, Port: port, Protocol: protocol, Segment: s}, client)
	}
	at := func(vip netip.Addr, protocol lb.Protocol, port uint16) []byte {
		return in(lb.Segment{}, vip, protocol, port)
	}
	announced := []struct {
		name, passed string // the exit where the kernel doesn't route the packet
		frame        []byte
	}{
		{"other port, ipv4", "pass_not_vip", at(vip4, lb.TCP, 81)},
		{"other port, ipv6", "pass_not_vip", at(vip6, lb.TCP, 81)},
		{"udp", "pass_not_vip", at(vip4, lb.UDP, 80)},
		{"other port in a VLAN, ipv4", "pass_not_vip", in(segment(100), vip4, lb.TCP, 81)},
		{"other port in a VLAN, ipv6", "pass_not_vip", in(segment(100), vip6, lb.TCP, 81)},
		{"sctp", "pass_not_tcp_udp", changed(web4, client4, atProtocol, 132)},
		{"mobility", "pass_not_tcp_udp", changed(web6, client6, atNext6, 135)},
		{"within tcp, ipv4", "pass_truncated", changed(web4, client4, atLength4, 0, 39)},
		{"no transport, ipv6", "pass_truncated", changed(web6, client6, atLength6, 0, 0)},
		{"later fragment, ipv4", "pass_fragment", changed(web4, client4, atFragment, 0, 9)},
		{"unused address, ipv4", "pass_not_vip", at(unused4, lb.TCP, 80)},
		{"unused address, ipv6", "pass_not_vip", at(unused6, lb.UDP, 80)},
	}
	strangers := [][]byte{at(other4, lb.TCP, 80), at(other6, lb.UDP, 53), in(segment(200), vip4, lb.TCP, 81)}
	for _, service := range []struct {
		name string
		of   func(netip.Addr) *lb.Service
	}{
		{"l2dsr", func(vip netip.Addr) *lb.Service { return manyBackends(vip, 3) }},
		{"nat", func(vip netip.Addr) *lb.Service { return natCaseOf(vip, lb.TCP).service() }},
	} {
		for _, vip := range []netip.Addr{vip4, vip6} {
			tagged := service.of(vip)
			tagged.Segment = segment(100)
			update(t, p, service.of(vip))
			update(t, p, tagged)
		}
		err := p.Discard([]netip.Prefix{netip.MustParsePrefix("10.200.0.0/16"), netip.MustParsePrefix("fd00:200::/64")})
		must(t, err)
		atDevice(t, func(device *net.Interface) {
			want := func(name string, frame []byte, verdict uint32, exit string) {
				var got uint32
				moved := exits(t, p, func() { got, _ = runAt(t, p, device.Index, frame) })
				if got != verdict || moved[exit] != 1 {
					t.Errorf("%s, %s: verdict %d, exits %v, want %s", service.name, name, got, moved, exit)
				}
			}
			for _, c := range announced {
				want(c.name+", no router", c.frame, xdpPass, c.passed)
			}
			addRoutes(t, device)
			for _, c := range announced {
				dropped := "drop_unserved"
				if c.passed == "pass_fragment" {
					dropped = "drop_fragment"
				}
				want(c.name, c.frame, xdpDrop, dropped)
			}
			for _, frame := range strangers {
				want("stranger", frame, xdpPass, "pass_not_vip")
			}
			for _, own := range []string{vip4.String() + "/32", vip6.String() + "/128", unused4.String() + "/32", unused6.String() + "/128"} {
				addr, err := netlink.ParseAddr(own)
				must(t, err)
				must(t, netlink.AddrReplace(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: 1}}, addr))
				must(t, waitForLocal(addr.IP))
			}
			for _, c := range announced {
				want(c.name+", own address", c.frame, xdpPass, c.passed)
			}
		})
		must(t, p.Discard(nil))
		atDevice(t, func(device *net.Interface) {
			addRoutes(t, device)
			for _, c := range announced[10:] {
				moved := exits(t, p, func() { runAt(t, p, device.Index, c.frame) })
				if moved[c.passed] != 1 {
					t.Errorf("%s, no longer announced: exits %v", c.name, moved)
				}
			}
		})
	}
}

// waitForLocal waits until the kernel takes packets to one of its new addresses: with IPv6 a
// worker of the kernel adds the route.
func waitForLocal(address net.IP) error {
	for deadline := time.Now().Add(await.Patience); ; time.Sleep(time.Millisecond) {
		routes, err := netlink.RouteGet(address)
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("routes to own address %s: %v, error %w", address, routes, err)
		}
	}
}
