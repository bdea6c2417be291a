// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/bgp"
)

// group has the services of one prefix.
type group struct {
	states []serviceState
	policy *bgp.Policy // nil without one
}

// group groups the services by their prefixes.
func (p *planner) group(in *Input) map[netip.Prefix]*group {
	groups := map[netip.Prefix]*group{}
	for i := range in.Desired.Services {
		e := &in.Desired.Services[i]
		prefix, policy := p.prefixOf(e.Configured.VIP.Address)
		g := groups[prefix]
		if g == nil {
			g = &group{policy: policy}
			groups[prefix] = g
		}
		g.states = append(g.states, in.evaluate(e))
	}
	for _, g := range groups {
		g.dropLocal()
	}
	return groups
}

// dropLocal removes the services that are never announced. If there are no others, they
// are kept for the reason.
func (g *group) dropLocal() {
	local := func(v serviceState) bool { return v.local }
	if slices.ContainsFunc(g.states, func(v serviceState) bool { return !v.local }) {
		g.states = slices.DeleteFunc(g.states, local)
	}
}

// sum is the state of the prefix, and how many services are suppressed.
func (g *group) sum() (most routeState, suppressed int) {
	for _, v := range g.states {
		most = max(most, v.routeState)
		if v.suppressed {
			suppressed++
		}
	}
	return most, suppressed
}

// complete reports whether no service may become servable yet.
func (g *group) complete() bool {
	return !slices.ContainsFunc(g.states, func(v serviceState) bool {
		return v.routeState == notServing && !v.suppressed && !v.local
	})
}

func (g *group) names() []string {
	names := make([]string, len(g.states))
	for i, v := range g.states {
		names[i] = v.service
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// reason is why the prefix is not announced, or will not be; empty if a service is
// serving. It has those of the first few services: an aggregate may have thousands.
func (g *group) reason() string {
	const most = 3
	var reasons []string
	for _, v := range g.states {
		if v.routeState == serving {
			return ""
		}
		if !slices.Contains(reasons, v.reason) && len(reasons) <= most {
			reasons = append(reasons, v.reason)
		}
	}
	if len(reasons) > most {
		reasons[most] = fmt.Sprintf("and others of %d services", len(g.states))
	}
	return strings.Join(reasons, "; ")
}

// prefixOf returns the prefix of a VIP, and its policy if there is one.
func (p *planner) prefixOf(vip netip.Addr) (netip.Prefix, *bgp.Policy) {
	host := netip.PrefixFrom(vip, vip.BitLen())
	for i := range p.policies {
		policy := &p.policies[i]
		at := slices.IndexFunc(policy.Prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(vip) })
		switch {
		case at >= 0 && policy.Aggregate:
			return policy.Prefixes[at], policy
		case at >= 0:
			return host, policy
		}
	}
	return host, nil
}

// route is the route of the group's prefix.
func (g *group) route(prefix netip.Prefix) bgp.Route {
	r := bgp.Route{Prefix: prefix}
	if g.policy == nil {
		return r
	}
	r.NextHop, r.Attributes = g.policy.NextHop6, g.policy.Attributes
	if prefix.Addr().Is4() {
		r.NextHop = g.policy.NextHop4
	}
	return r
}
