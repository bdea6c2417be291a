// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/controller/ledger"
	"fairlead.io/fairlead/internal/source/kube"
)

// checkParts says of each listener and pool whether it can be served at an address: as
// the agents will read them. Pools that no listener leads to are accepted.
func checkParts(b *v1alpha1.LoadBalancer, address netip.Addr) (listeners []v1alpha1.PartStatus, pools []v1alpha1.PoolStatus) {
	problems := kube.CheckParts(b, address)
	for _, l := range b.Spec.Listeners {
		part := v1alpha1.PartStatus{Name: l.Name, Accepted: true}
		for _, p := range problems {
			if part.Accepted && p.Listener == l.Name && p.Member == "" {
				part.Accepted, part.Message = false, p.Text
			}
		}
		listeners = append(listeners, part)
	}
	for _, pool := range b.Spec.Pools {
		pools = append(pools, poolStatus(pool, problems))
	}
	return listeners, pools
}

// poolStatus gathers the members that can't be served, each once.
func poolStatus(pool v1alpha1.Pool, problems []kube.PartProblem) v1alpha1.PoolStatus {
	s := v1alpha1.PoolStatus{PartStatus: v1alpha1.PartStatus{Name: pool.Name, Accepted: true}}
	for _, p := range problems {
		known := slices.ContainsFunc(s.Members, func(m v1alpha1.PartStatus) bool { return m.Name == p.Member })
		if p.Pool == pool.Name && p.Member != "" && !known {
			s.Members = append(s.Members, v1alpha1.PartStatus{Name: p.Member, Message: p.Text})
		}
	}
	if n := len(s.Members); n > 0 {
		s.Accepted, s.Message = false, fmt.Sprintf("%d of %d members can't be served", n, len(pool.Members))
	}
	return s
}

// checkedAddress returns the address at which parts are checked: while there is none,
// one for documentation (RFC 5737, RFC 3849).
func checkedAddress(b *v1alpha1.LoadBalancer, g ledger.Grant) netip.Addr {
	switch {
	case len(g.Addresses) > 0:
		return g.Addresses[0]
	case balancerFamily(b) == alloc.IPv6:
		return netip.MustParseAddr("2001:db8::1")
	default:
		return netip.MustParseAddr("192.0.2.1")
	}
}
