// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
)

// poolPolicies are how a pool's addresses are announced; none for host routes
// without attributes. Ranges are announced as host routes also where CIDRs are
// aggregated.
func poolPolicies(pool *v1alpha1.AddressPool) (policies []bgp.Policy, problems []string) {
	a := pool.Spec.Announce
	if a == nil {
		return nil, nil
	}
	p := bgp.Policy{}
	if err := readAttributes(a, &p.Attributes); err != nil {
		return nil, []string{"spec.announce: " + err.Error() + ": addresses are announced without attributes"}
	}
	var cidrs, ranges []netip.Prefix
	for i, text := range pool.Spec.Addresses {
		prefixes, isRange, err := readRange(string(text))
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("spec.addresses[%d]: %v", i, err))
		case isRange:
			ranges = append(ranges, prefixes...)
		case a.Aggregate && prefixes[0].Bits() == 0:
			problems = append(problems, fmt.Sprintf("spec.addresses[%d]: %s is not aggregated: it would be a default route", i, prefixes[0]))
			ranges = append(ranges, prefixes...)
		default:
			cidrs = append(cidrs, prefixes...)
		}
	}
	if len(cidrs) > 0 {
		p.Prefixes, p.Aggregate = cidrs, a.Aggregate
		policies = append(policies, p)
	}
	if len(ranges) > 0 {
		p.Prefixes, p.Aggregate = ranges, false
		policies = append(policies, p)
	}
	return policies, problems
}

// readRange reads "192.0.2.0/24" or "192.0.2.10-192.0.2.20", of which it makes the
// fewest prefixes that have these addresses and no others.
func readRange(text string) (prefixes []netip.Prefix, isRange bool, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		p, err := netip.ParsePrefix(text)
		if err == nil && p.Addr().Is4In6() {
			err = fmt.Errorf("%s is of IPv4-mapped IPv6 addresses", text)
		}
		return []netip.Prefix{p.Masked()}, false, err
	}
	from, err := netip.ParseAddr(strings.TrimSpace(first))
	if err != nil {
		return nil, true, err
	}
	to, err := netip.ParseAddr(strings.TrimSpace(last))
	if err != nil {
		return nil, true, err
	}
	if from.BitLen() != to.BitLen() || to.Less(from) || from.Is4In6() || from.Zone() != "" || to.Zone() != "" {
		return nil, true, fmt.Errorf("bad range %q: want two addresses of one family, the lower one first", text)
	}
	return cover(from, to), true, nil
}

// cover returns the fewest prefixes that have the addresses from one to the other,
// each as long as its beginning and the end allow.
func cover(from, to netip.Addr) (prefixes []netip.Prefix) {
	for {
		bits := from.BitLen()
		for bits > 0 {
			wider := netip.PrefixFrom(from, bits-1)
			if wider.Masked().Addr() != from || to.Less(last(wider)) {
				break
			}
			bits--
		}
		p := netip.PrefixFrom(from, bits)
		prefixes = append(prefixes, p)
		end := last(p)
		if end == to {
			return prefixes
		}
		from = end.Next()
	}
}

// last is a prefix' last address.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// maxPrepend is bgp.Attributes.Prepend's.
const maxPrepend = 16

func readAttributes(a *v1alpha1.Announcement, to *bgp.Attributes) error {
	for _, c := range a.Communities {
		if strings.Count(string(c), ":") == 2 {
			large, err := bgp.ParseLargeCommunity(string(c))
			if err != nil {
				return err
			}
			to.LargeCommunities = append(to.LargeCommunities, large)
			continue
		}
		standard, err := bgp.ParseCommunity(string(c))
		if err != nil {
			return err
		}
		if standard == bgp.GracefulShutdown {
			return fmt.Errorf("%s is GRACEFUL_SHUTDOWN, which routes have while the node drains", c)
		}
		to.Communities = append(to.Communities, standard)
	}
	slices.Sort(to.Communities)
	to.Communities = slices.Compact(to.Communities)
	slices.SortFunc(to.LargeCommunities, func(a, b bgp.LargeCommunity) int { return slices.Compare(a[:], b[:]) })
	to.LargeCommunities = slices.Compact(to.LargeCommunities)
	if a.Prepend < 0 || a.Prepend > maxPrepend {
		return fmt.Errorf("prepend %d is out of range: want 0 to %d", a.Prepend, maxPrepend)
	}
	to.Prepend = int(a.Prepend)
	var err error
	if to.LocalPreference, err = readMetric("localPreference", a.LocalPreference); err != nil {
		return err
	}
	to.MED, err = readMetric("med", a.MED)
	return err
}

// readMetric reads a number of 32 bits; nil is none.
func readMetric(field string, n *int64) (*uint32, error) {
	if n == nil {
		return nil, nil
	}
	if *n < 0 || *n > math.MaxUint32 {
		return nil, fmt.Errorf("%s %d is out of range: want 0 to %d", field, *n, uint32(math.MaxUint32))
	}
	own := uint32(*n)
	return &own, nil
}
