// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// MaxSources is the largest number of prefixes, allowed and denied ones
// together, of one service.
const MaxSources = 4096

// Sources are the clients that may use a service, by source prefix. The longest prefix that
// contains an address decides; one in both lists denies. Other addresses are allowed only
// if Allow is empty.
type Sources struct {
	// Prefixes are of the VIP's family, have no host bits set and are distinct within their
	// list.
	Allow []netip.Prefix `json:"allow,omitempty"`
	Deny  []netip.Prefix `json:"deny,omitempty"`
}

// Verdicts returns whether each prefix is allowed where no longer prefix matches, including
// the prefix of all addresses of the VIP's family. It is nil if all sources are allowed.
func (s Sources) Verdicts(vip netip.Addr) map[netip.Prefix]bool {
	verdicts := map[netip.Prefix]bool{netip.PrefixFrom(vip, 0).Masked(): len(s.Allow) == 0}
	for _, p := range s.Allow {
		verdicts[p] = true
	}
	for _, p := range s.Deny {
		verdicts[p] = false
	}
	for _, allowed := range verdicts {
		if !allowed {
			return verdicts
		}
	}
	return nil
}

// Within reports whether every client of a VIP that s allows is also allowed by o.
func (s Sources) Within(o Sources, vip netip.Addr) bool {
	var b netipx.IPSetBuilder
	b.AddSet(s.allowed(vip))
	b.RemoveSet(o.allowed(vip))
	more, err := b.IPSet()
	return err == nil && len(more.Ranges()) == 0
}

// allowed returns the allowed addresses of the VIP's family.
func (s Sources) allowed(vip netip.Addr) *netipx.IPSet {
	verdicts := s.Verdicts(vip)
	if verdicts == nil {
		verdicts = map[netip.Prefix]bool{netip.PrefixFrom(vip, 0).Masked(): true}
	}
	var b netipx.IPSetBuilder
	// Longer prefixes decide later; prefixes of one length are disjoint.
	for _, p := range slices.SortedFunc(maps.Keys(verdicts), func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(a.Bits(), b.Bits()), compareBool(verdicts[a], verdicts[b]), a.Addr().Compare(b.Addr()))
	}) {
		if verdicts[p] {
			b.AddPrefix(p)
		} else {
			b.RemovePrefix(p)
		}
	}
	set, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{} // prefixes are valid
	}
	return set
}

// compareBool orders false before true: changing between the two costs the set builder time.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// check checks the lists of a service with that VIP.
func (s Sources) check(f *findings, path string, vip netip.Addr) {
	if n := len(s.Allow) + len(s.Deny); n > MaxSources {
		f.add(path, fmt.Errorf("%d prefixes are too many: want at most %d", n, MaxSources))
		return
	}
	checkPrefixes(f, path+".allow", s.Allow, vip)
	checkPrefixes(f, path+".deny", s.Deny, vip)
}

func checkPrefixes(f *findings, path string, list []netip.Prefix, vip netip.Addr) {
	first := make(map[netip.Prefix]int, len(list))
	for i, p := range list {
		err := checkPrefix(p, vip)
		if j, taken := first[p]; taken && err == nil {
			err = fmt.Errorf("%s is also %s[%d]", p, path, j)
		} else if !taken {
			first[p] = i
		}
		if err != nil {
			f.add(fmt.Sprintf("%s[%d]", path, i), err)
		}
	}
}

// checkPrefix doesn't check the family if the VIP is invalid, which is reported elsewhere.
func checkPrefix(p netip.Prefix, vip netip.Addr) error {
	switch {
	case !p.IsValid():
		return errors.New("no prefix")
	case p != p.Masked():
		return fmt.Errorf("prefix %s has host bits set: write %s", p, p.Masked())
	case p.Addr().Is4In6():
		return fmt.Errorf("prefix %s is of IPv4-mapped IPv6 addresses: write it as IPv4", p)
	case vip.IsValid() && p.Addr().Is4() != vip.Is4():
		return fmt.Errorf("prefix %s is not of the same family as the VIP %s", p, vip)
	}
	return nil
}
