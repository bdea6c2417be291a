// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestSourceAddress(t *testing.T) {
	own := func(index int, prefix string) address {
		return address{index: index, prefix: netip.MustParsePrefix(prefix)}
	}
	deprecated := own(eth0, "2001:db8:1::9/64")
	deprecated.deprecated = true
	temporary := own(eth0, "2001:db8:1::8/64")
	temporary.secondary = true
	all := []address{
		own(eth1, "10.0.0.6/24"),
		own(eth1, "2001:db8:1::6/64"),
		own(eth0, "fe80::5/64"),
		own(eth0, "10.3.0.5/24"),
		own(eth0, "10.0.0.5/24"),
		own(eth0, "169.254.0.5/16"),
		deprecated, temporary,
		own(eth0, "fd00:10::5/64"),
		own(eth0, "2001:db8:1::5/64"),
	}
	for _, test := range []struct {
		name, next, target, want string
		index                    int
	}{
		{name: "network of the target", index: eth0, next: "10.0.0.21", target: "10.0.0.21", want: "10.0.0.5"},
		{name: "network of the gateway", index: eth0, next: "10.0.0.1", target: "192.0.2.1", want: "10.0.0.5"},
		{name: "the first otherwise", index: eth0, next: "192.0.2.1", target: "192.0.2.1", want: "10.3.0.5"},
		{name: "link-local IPv4", index: eth0, next: "169.254.7.7", target: "169.254.7.7", want: "169.254.0.5"},
		{name: "longest common prefix", index: eth0, next: "fe80::1", target: "fd00:99::1", want: "fd00:10::5"},
		{name: "public before temporary and deprecated", index: eth0, next: "fe80::1", target: "2001:db8:1::21", want: "2001:db8:1::5"},
		{name: "link-local IPv6", index: eth0, next: "fe80::1", target: "fe80::1", want: "fe80::5"},
		{name: "another interface's", index: eth2, next: "192.0.2.1", target: "192.0.2.1", want: "10.0.0.6"},
		{name: "never another link's link-local", index: eth2, next: "fe80::1", target: "fe80::1", want: "fd00:10::5"},
	} {
		if got := sourceAddress(all, test.index, ip(test.next), ip(test.target)); got != ip(test.want) {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
	if got := sourceAddress(all[:1], eth0, ip("fd00::1"), ip("fd00::1")); got.IsValid() {
		t.Errorf("IPv6 source %s of a machine that has only IPv4", got)
	}
}

func TestLocalAddress(t *testing.T) {
	network := &net.IPNet{IP: net.ParseIP("fd00::5"), Mask: net.CIDRMask(64, 128)}
	for _, test := range []struct {
		name    string
		address netlink.Addr
		want    bool
	}{
		{"global", netlink.Addr{IPNet: network}, true},
		{"tentative", netlink.Addr{IPNet: network, Flags: unix.IFA_F_TENTATIVE}, false},
		{"optimistic", netlink.Addr{IPNet: network, Flags: unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC}, true},
		{"duplicate", netlink.Addr{IPNet: network, Flags: unix.IFA_F_DADFAILED}, false},
		{"host scope", netlink.Addr{IPNet: network, Scope: unix.RT_SCOPE_HOST}, false},
	} {
		if _, got := localAddress(test.address); got != test.want {
			t.Errorf("%s: usable %v, want %v", test.name, got, test.want)
		}
	}
}
