// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"testing"
)

// Clients announce accepted prefixes with their own addresses or configured ones as next hops.
// A range may have prefixes of its own.
func TestAccepts(t *testing.T) {
	address, prefix := netip.MustParseAddr, netip.MustParsePrefix
	r := Reflection{
		Clients: []Range{
			{Prefix: prefix("10.0.2.0/25")},
			{Prefix: prefix("10.0.2.128/25"), Accept: []Acceptance{{Prefix: prefix("10.1.7.0/24"), Shortest: 24}}},
		},
		Accept:   []Acceptance{{Prefix: prefix("10.1.0.0/16"), Shortest: 32}, {Prefix: prefix("fd00:10::/32"), Shortest: 128}},
		NextHops: []netip.Prefix{prefix("fd00:2::/64")},
	}
	for _, test := range []struct {
		client, prefix, hop string
		want                bool
	}{
		{"10.0.2.11", "10.1.1.1/32", "10.0.2.11", true},
		{"10.0.2.11", "10.1.1.1/32", "10.0.2.12", false},
		{"10.0.2.11", "fd00:10::1/128", "fd00:2::12", true},
		{"10.0.2.11", "fd00:10::1/128", "fd00:3::12", false},
		{"10.0.2.11", "10.1.1.0/24", "10.0.2.11", false},
		{"10.0.2.11", "0.0.0.0/0", "10.0.2.11", false},
		{"10.0.2.11", "10.2.1.1/32", "10.0.2.11", false},
		{"10.0.2.130", "10.1.1.1/32", "10.0.2.130", false},
		{"10.0.2.130", "10.1.7.0/24", "10.0.2.130", true},
	} {
		if got := r.Accepts(address(test.client), prefix(test.prefix), address(test.hop)); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}
