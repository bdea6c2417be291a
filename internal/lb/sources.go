// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"fmt"
	"net/netip"
)

// MaxSources is the largest number of prefixes, allowed and denied ones
// together, of one service.
const MaxSources = 4096

// Sources says which clients may use a service, by prefixes of their
// addresses. The longest prefix that holds an address decides; one that is in
// both lists denies. An address that none holds may use the service unless
// Allow names somebody.
type Sources struct {
	// Prefixes are of the VIP's family, have no bits behind their length and are
	// distinct within their list.
	Allow []netip.Prefix `json:"allow,omitempty"`
	Deny  []netip.Prefix `json:"deny,omitempty"`
}

// Verdicts is what the lists say of each prefix: whether its addresses are
// let in where no longer prefix holds them. The prefix of all addresses of the
// VIP's family is always there. The result is nil if everybody is let in.
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

// Allows reports whether a client of the VIP's family may use the service.
func (s Sources) Allows(client netip.Addr) bool {
	allowed, length := len(s.Allow) == 0, -1
	for _, p := range s.Allow {
		if p.Contains(client) && p.Bits() > length {
			allowed, length = true, p.Bits()
		}
	}
	for _, p := range s.Deny {
		if p.Contains(client) && p.Bits() >= length {
			allowed, length = false, p.Bits()
		}
	}
	return allowed
}

// check finds what is wrong with the lists of a service at vip.
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

// checkPrefix leaves the family open where the VIP's own address is wrong,
// which has been said already.
func checkPrefix(p netip.Prefix, vip netip.Addr) error {
	switch {
	case !p.IsValid():
		return errors.New("no prefix")
	case p != p.Masked():
		return fmt.Errorf("prefix %s has bits behind its length: write %s", p, p.Masked())
	case p.Addr().Is4In6():
		return fmt.Errorf("prefix %s is of IPv4-mapped IPv6 addresses: write it as IPv4", p)
	case vip.IsValid() && p.Addr().Is4() != vip.Is4():
		return fmt.Errorf("prefix %s is of another family than the VIP %s: it holds none of its clients", p, vip)
	}
	return nil
}
