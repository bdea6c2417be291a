// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
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
		prefix, policy := p.prefixOf(e.Configured.VIP)
		g := groups[prefix]
		if g == nil {
			g = &group{}
			groups[prefix] = g
		}
		g.states = append(g.states, in.evaluate(e, policy))
	}
	for _, g := range groups {
		g.chooseVLAN()
		g.dropLocal()
	}
	return groups
}

// chooseVLAN removes the services in other VLANs than the first one, as a prefix has one route.
// The untagged network, 0, comes first.
func (g *group) chooseVLAN() {
	first := -1
	for i := range g.states {
		if !g.states[i].local && (first < 0 || g.states[i].vlan < g.states[first].vlan) {
			first = i
		}
	}
	if first < 0 {
		g.policy = g.states[0].policy // a route may be leaving
		return
	}
	chosen := g.states[first]
	g.policy = chosen.policy
	for i := range g.states {
		if v := &g.states[i]; !v.local && v.vlan != chosen.vlan {
			v.local, v.reason = true, fmt.Sprintf("%s: in vlan %d, but the route is that of %s", v.service, v.vlan, chosen.service)
		}
	}
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

// unsettled reports whether a service that is serving is unsettled.
func (g *group) unsettled() bool {
	return slices.ContainsFunc(g.states, func(v serviceState) bool { return v.entry != nil && unsettled(v.entry) })
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
// serving. It joins the reasons of the first few services: an aggregate may have
// thousands.
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
func (p *planner) prefixOf(vip lb.VIP) (netip.Prefix, *bgp.Policy) {
	host := netip.PrefixFrom(vip.Address, vip.Address.BitLen())
	for i := range p.policies {
		policy := &p.policies[i]
		if vip.Segment != segmentOf(policy) {
			continue
		}
		at := slices.IndexFunc(policy.Prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(vip.Address) })
		switch {
		case at >= 0 && policy.Aggregate:
			return policy.Prefixes[at], policy
		case at >= 0:
			return host, policy
		}
	}
	return host, nil
}

// segmentOf is where packets to the VIPs of a policy arrive.
func segmentOf(policy *bgp.Policy) lb.Segment {
	if policy.VLAN == 0 {
		return lb.Segment{}
	}
	return lb.Segment{Type: lb.SegmentVLAN, ID: uint32(policy.VLAN)}
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
