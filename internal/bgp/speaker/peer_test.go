// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
)

func TestNextHops(t *testing.T) {
	both := hops{netip.MustParseAddr("10.0.2.11"), netip.MustParseAddr("fd00:2::11")}
	all := session.Open{IPv4: true, IPv6: true, IPv4OverIPv6: true}
	strict := session.Open{IPv4: true, IPv6: true}
	for name, test := range map[string]struct {
		own           hops
		open          session.Open
		prefix, given string
		want, reason  string
	}{
		"IPv4":                            {own: both, open: all, prefix: "10.1.1.1/32", want: "10.0.2.11"},
		"IPv6":                            {own: both, open: all, prefix: "fd00:1::1/128", want: "fd00:2::11"},
		"given":                           {own: both, open: all, prefix: "10.1.1.1/32", given: "10.0.2.99", want: "10.0.2.99"},
		"given IPv6":                      {own: both, open: all, prefix: "fd00:1::1/128", given: "fd00:2::99", want: "fd00:2::99"},
		"given IPv6 for IPv4":             {own: both, open: all, prefix: "10.1.1.1/32", given: "fd00:2::99", want: "fd00:2::99"},
		"given IPv6 for IPv4, not taken":  {own: both, open: strict, prefix: "10.1.1.1/32", given: "fd00:2::99", reason: "RFC 8950"},
		"no IPv4 address":                 {own: hops{v6: both.v6}, open: all, prefix: "10.1.1.1/32", want: "fd00:2::11"},
		"no IPv4 address, IPv6 not taken": {own: hops{v6: both.v6}, open: strict, prefix: "10.1.1.1/32", reason: "no IPv4 address"},
		"no IPv6 address":                 {own: hops{v4: both.v4}, open: all, prefix: "fd00:1::1/128", reason: "no IPv6 address"},
		"peer without IPv6":               {own: both, open: session.Open{IPv4: true}, prefix: "fd00:1::1/128", reason: "accepts no IPv6"},
		"peer without IPv4":               {own: both, open: session.Open{IPv6: true}, prefix: "10.1.1.1/32", reason: "accepts no IPv4"},
	} {
		t.Run(name, func(t *testing.T) {
			route := bgp.Route{Prefix: netip.MustParsePrefix(test.prefix)}
			if test.given != "" {
				route.NextHop = netip.MustParseAddr(test.given)
			}
			hop, failure := test.own.nextHop(&route, &test.open)
			if test.reason != "" {
				if !strings.Contains(failure, test.reason) {
					t.Errorf("%s: %s, want %s", hop, failure, test.reason)
				}
				return
			}
			if failure != "" || hop.String() != test.want {
				t.Errorf("%s, want %s; %s", hop, test.want, failure)
			}
		})
	}
}

func TestChooseAddress(t *testing.T) {
	address := func(text string, scope, flags int) netlink.Addr {
		ip, network, _ := net.ParseCIDR(text)
		return netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: network.Mask}, Scope: scope, Flags: flags}
	}
	const global, link = unix.RT_SCOPE_UNIVERSE, unix.RT_SCOPE_LINK
	for name, test := range map[string]struct {
		addrs []netlink.Addr
		want  string
	}{
		"none":           {nil, "invalid IP"},
		"link-local":     {[]netlink.Addr{address("fe80::1/64", link, 0)}, "invalid IP"},
		"the first":      {[]netlink.Addr{address("10.0.2.11/24", global, 0), address("10.0.2.12/24", global, 0)}, "10.0.2.11"},
		"a VIP before":   {[]netlink.Addr{address("10.1.1.1/32", global, 0), address("10.0.2.11/24", global, 0)}, "10.0.2.11"},
		"only a host's":  {[]netlink.Addr{address("10.0.2.11/32", global, 0)}, "10.0.2.11"},
		"not yet usable": {[]netlink.Addr{address("fd00::1/64", global, unix.IFA_F_TENTATIVE)}, "invalid IP"},
		"temporary": {[]netlink.Addr{
			address("fd00::1/64", global, unix.IFA_F_TEMPORARY), address("fd00::2/64", global, unix.IFA_F_PERMANENT)}, "fd00::2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := choose(test.addrs).String(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
