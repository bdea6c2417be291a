// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"iter"
	"net/netip"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/spec"
)

// poolPolicies returns the announcement policies of a pool; none for host routes without
// attributes. Ranges are announced as host routes even if CIDRs are aggregated, and so are CIDRs with
// addresses of several groups.
func poolPolicies(pool *v1alpha1.AddressPool, served iter.Seq2[string, []netip.Addr]) (policies []bgp.Policy, problems []string) {
	a := pool.Spec.Announce
	if a == nil {
		return nil, nil
	}
	p, wrong := spec.Announcement(a)
	if len(wrong) > 0 {
		return nil, []string{"spec.announce." + wrong[0].Error() + ": addresses are announced without attributes"}
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
		case a.Aggregate && spec.NotAggregated(prefix, served) != "":
			problems = append(problems, spec.NotAggregated(prefix, served))
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
