// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"math"
	"net/netip"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/bgp"
)

// poolPolicies returns the announcement policies of a pool; none for host routes without
// attributes. Ranges are announced as host routes even if CIDRs are aggregated.
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
		addresses, err := alloc.ParseRange(string(text))
		if err != nil {
			problems = append(problems, fmt.Sprintf("spec.addresses[%d]: %v", i, err))
			continue
		}
		prefix, err := netip.ParsePrefix(string(text))
		switch {
		case err != nil:
			ranges = append(ranges, addresses.Prefixes()...)
		case a.Aggregate && prefix.Bits() == 0:
			problems = append(problems, fmt.Sprintf("spec.addresses[%d]: %s is not aggregated: it would be a default route", i, prefix))
			ranges = append(ranges, prefix)
		default:
			cidrs = append(cidrs, prefix)
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

func readAttributes(a *v1alpha1.Announcement, to *bgp.Attributes) error {
	for _, c := range a.Communities {
		if err := to.AddCommunity(string(c)); err != nil {
			return err
		}
	}
	if a.Prepend < 0 || a.Prepend > bgp.MaxPrepend {
		return fmt.Errorf("prepend %d is out of range: want 0 to %d", a.Prepend, bgp.MaxPrepend)
	}
	to.Prepend = int(a.Prepend)
	var err error
	if to.LocalPreference, err = readMetric("localPreference", a.LocalPreference); err != nil {
		return err
	}
	to.MED, err = readMetric("med", a.MED)
	return err
}

// readMetric reads a 32-bit number; nil is none.
func readMetric(field string, n *int64) (*uint32, error) {
	if n == nil {
		return nil, nil
	}
	if *n < 0 || *n > math.MaxUint32 {
		return nil, fmt.Errorf("%s %d is out of range: want 0 to %d", field, *n, uint32(math.MaxUint32))
	}
	return new(uint32(*n)), nil
}
