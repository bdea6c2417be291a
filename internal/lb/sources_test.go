// SPDX-License-Identifier: Apache-2.0

package lb_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/lb"
)

func prefixes(text string) []netip.Prefix {
	var list []netip.Prefix
	for word := range strings.FieldsSeq(text) {
		list = append(list, netip.MustParsePrefix(word))
	}
	return list
}

// allows is the verdict of the longest prefix that contains an address.
func allows(s lb.Sources, client netip.Addr) bool {
	verdicts := s.Verdicts(client)
	for bits := client.BitLen(); bits >= 0; bits-- {
		if allowed, found := verdicts[netip.PrefixFrom(client, bits).Masked()]; found {
			return allowed
		}
	}
	return true
}

func TestSources(t *testing.T) {
	for name, test := range map[string]struct{ allow, deny, in, out string }{
		"nothing said":  {"", "", "192.0.2.1 0.0.0.0", ""},
		"deny":          {"", "192.0.2.0/24", "192.0.3.0 192.0.1.255", "192.0.2.0 192.0.2.255"},
		"allow":         {"192.0.2.0/24", "", "192.0.2.0 192.0.2.255", "192.0.3.0 192.0.1.255"},
		"hole in allow": {"192.0.2.0/24", "192.0.2.128/25", "192.0.2.127", "192.0.2.128 192.0.3.1"},
		"hole in deny":  {"192.0.2.1/32", "192.0.2.0/24", "192.0.2.1", "192.0.2.2 192.0.3.1"},
		"deny wins":     {"192.0.2.0/24 198.51.100.0/24", "192.0.2.0/24", "198.51.100.1", "192.0.2.1"},
		"everybody but": {"0.0.0.0/0", "192.0.2.0/24", "192.0.3.1", "192.0.2.1"},
		"none but":      {"192.0.2.0/24", "0.0.0.0/0", "192.0.2.1", "192.0.3.1"},
		"three deep":    {"10.0.0.0/8 10.1.2.0/24", "10.1.0.0/16", "10.2.0.1 10.1.2.1", "10.1.3.1 11.0.0.1"},
		"ipv6":          {"2001:db8::/32", "2001:db8:0:1::/64", "2001:db8::1", "2001:db8:0:1::1 2001:db9::1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := lb.Sources{Allow: prefixes(test.allow), Deny: prefixes(test.deny)}
			for word := range strings.FieldsSeq(test.in) {
				if !allows(s, netip.MustParseAddr(word)) {
					t.Errorf("%s is denied", word)
				}
			}
			for word := range strings.FieldsSeq(test.out) {
				if allows(s, netip.MustParseAddr(word)) {
					t.Errorf("%s is allowed", word)
				}
			}
		})
	}
}

func TestVerdicts(t *testing.T) {
	vip := netip.MustParseAddr("10.1.1.1")
	prefix := netip.MustParsePrefix
	for name, test := range map[string]struct {
		allow, deny string
		want        map[netip.Prefix]bool
	}{
		"nothing said":  {"", "", nil},
		"everybody":     {"0.0.0.0/0 10.0.0.0/8", "", nil},
		"no source":     {"", "0.0.0.0/0", map[netip.Prefix]bool{prefix("0.0.0.0/0"): false}},
		"some":          {"10.0.0.0/8", "", map[netip.Prefix]bool{prefix("0.0.0.0/0"): false, prefix("10.0.0.0/8"): true}},
		"all but some":  {"", "10.0.0.0/8", map[netip.Prefix]bool{prefix("0.0.0.0/0"): true, prefix("10.0.0.0/8"): false}},
		"in both lists": {"10.0.0.0/8", "10.0.0.0/8", map[netip.Prefix]bool{prefix("0.0.0.0/0"): false, prefix("10.0.0.0/8"): false}},
	} {
		t.Run(name, func(t *testing.T) {
			got := lb.Sources{Allow: prefixes(test.allow), Deny: prefixes(test.deny)}.Verdicts(vip)
			if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWithin(t *testing.T) {
	vip := netip.MustParseAddr("10.1.1.1")
	for name, test := range map[string]struct {
		allow, deny, thanAllow, thanDeny string
		want                             bool
	}{
		"all":               {"", "", "", "", true},
		"list in all":       {"192.0.2.0/24", "", "", "", true},
		"all in list":       {"", "", "192.0.2.0/24", "", false},
		"halves":            {"192.0.2.0/25 192.0.2.128/25", "", "192.0.2.0/24", "", true},
		"part":              {"192.0.2.0/24", "", "192.0.2.0/25", "", false},
		"hole":              {"192.0.2.0/24", "", "192.0.2.0/24", "192.0.2.7/32", false},
		"the same hole":     {"192.0.2.0/24", "192.0.2.7/32", "", "192.0.2.7/32", true},
		"hole filled":       {"192.0.2.7/32", "192.0.2.0/24", "192.0.2.0/24", "192.0.2.6/32", true},
		"nothing in others": {"", "0.0.0.0/0", "192.0.2.0/24", "", true},
	} {
		a := lb.Sources{Allow: prefixes(test.allow), Deny: prefixes(test.deny)}
		b := lb.Sources{Allow: prefixes(test.thanAllow), Deny: prefixes(test.thanDeny)}
		if got := a.Within(b, vip); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// Long lists, allowed and denied in turn, are compared in no time.
func TestWithinLongLists(t *testing.T) {
	var s lb.Sources
	for i := range lb.MaxSources {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		if i%2 == 0 {
			s.Allow = append(s.Allow, p)
		} else {
			s.Deny = append(s.Deny, p)
		}
	}
	fewer := lb.Sources{Allow: s.Allow[1:], Deny: s.Deny}
	vip := netip.MustParseAddr("10.1.1.1")
	if !fewer.Within(s, vip) || s.Within(fewer, vip) {
		t.Error("wrong")
	}
}
