// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/report"
)

// takeoverGrace is how long a cordoned node stays in its group until all other nodes announce as
// many routes as it does. Afterwards one such node is enough. While no other node announces one of its
// addresses, it stays: the only pod of a Service with traffic policy Local may be there.
const takeoverGrace = 30 * time.Second

// formerRecheck is the delay before a group is checked again that waits for a node's first report
// since the node joined: a report with as many routes as the last one triggers nothing else.
const formerRecheck = 5 * time.Second

// addRoutes sets how many prefixes candidates announce, from their reports. Leaving routes don't count:
// routers send nothing there, also if the node has joined the group again since.
func addRoutes(candidates []candidate, reports []v1alpha1.BalancerNode) {
	for i := range reports {
		at := slices.IndexFunc(candidates, func(m candidate) bool { return m.Name == reports[i].Name })
		if at < 0 {
			continue
		}
		candidates[at].report = reports[i].ResourceVersion
		if s := &reports[i].Status; candidates[at].serving && (s.Routes.Sessions > 0 || len(s.Peers) == 0) {
			candidates[at].routes, candidates[at].reported = s.Routes.Announced-s.Routes.Leaving, s
		}
	}
}

// discountFormer sets the routes of nodes to 0 that have written no report since they joined their
// group: the last one may be of an earlier membership. A cordoned node keeps its own, as it may
// announce more by now, and others are to announce as many before it leaves.
func (r *groupReconciler) discountFormer(groups []*group, candidates []candidate, assigned map[string][]string) {
	joined := map[string]string{}
	for i := range candidates {
		m := &candidates[i]
		report, known := r.joined[m.Name]
		for _, g := range groups {
			if slices.Contains(assigned[g.Name], m.Name) && !slices.Contains(r.assigned[string(g.UID)], m.Name) {
				report, known = m.report, true
			}
		}
		if known && report == m.report {
			joined[m.Name] = report
			if m.cordoned.IsZero() {
				m.routes, m.former = 0, m.routes > 0
			}
		}
	}
	r.joined = joined
}

// addCordoned adds cordoned nodes to the assigned nodes of groups: each stays in its group until it
// is replaced, and a group without any Ready node gets one. It returns the time until the result
// may change by itself; 0: never.
//
// A spare that replaces a cordoned node is already among the assigned ones. It starts to announce
// while the group still has both.
func (r *groupReconciler) addCordoned(groups []*group, nodes []candidate, assigned map[string][]string, now time.Time) (recheck time.Duration) {
	taken := map[string]bool{}
	add := func(g *group, m *candidate) {
		taken[m.Name] = true
		g.leaving = append(g.leaving, m.Name)
		at, _ := slices.BinarySearch(assigned[g.Name], m.Name)
		assigned[g.Name] = slices.Insert(assigned[g.Name], at, m.Name)
	}
	may := func(g *group, m *candidate) bool {
		return !m.cordoned.IsZero() && !taken[m.Name] && g.invalid == nil && g.selector.Matches(m.labels)
	}
	for _, g := range groups {
		others := membersOf(assigned[g.Name], nodes)
		for i := range nodes {
			if m := &nodes[i]; may(g, m) && slices.Contains(r.assigned[string(g.UID)], m.Name) {
				done, wait := m.replaced(others, g.addresses, now)
				if !done {
					add(g, m)
				}
				recheck = sooner(recheck, wait)
			}
		}
	}
	for _, g := range groups {
		if slices.ContainsFunc(membersOf(assigned[g.Name], nodes), func(m candidate) bool { return m.Ready }) {
			continue
		}
		if at := slices.IndexFunc(nodes, func(m candidate) bool { return m.Ready && may(g, &m) }); at >= 0 {
			add(g, &nodes[at])
		}
	}
	return recheck
}

// membersOf returns the candidates with these names.
func membersOf(names []string, nodes []candidate) (members []candidate) {
	for _, m := range nodes {
		if slices.Contains(names, m.Name) {
			members = append(members, m)
		}
	}
	return members
}

// replaced reports whether the other nodes of its group serve in the place of a cordoned node, or
// the time until they may do so without any change; 0: never.
func (m *candidate) replaced(others []candidate, addresses []netip.Addr, now time.Time) (done bool, wait time.Duration) {
	serving, equal, recheck := 0, 0, time.Duration(0)
	for _, o := range others {
		if !o.serving {
			continue
		}
		serving++
		if o.former {
			recheck = formerRecheck
		}
		if o.routes >= m.routes {
			equal++
		}
	}
	if equal == 0 || m.hasOnlyRoute(others, addresses) {
		return false, recheck
	}
	wait = takeoverGrace - now.Sub(m.cordoned)
	if equal == serving || wait <= 0 {
		return true, 0
	}
	return false, sooner(wait, recheck)
}

// hasOnlyRoute reports whether a node is known to announce an address that no other node of its group
// announces. Reports list some of many withheld addresses.
func (m *candidate) hasOnlyRoute(others []candidate, addresses []netip.Addr) bool {
	if m.routes == 0 {
		return false
	}
	own, rest := report.Read(m.Name, m.reported), []*report.Node{}
	for _, o := range others {
		if o.routes > 0 {
			rest = append(rest, report.Read(o.Name, o.reported))
		}
	}
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		_, withheld, all := own.Withholds(a)
		return !withheld && all && !slices.ContainsFunc(rest, func(n *report.Node) bool {
			_, withheld, _ := n.Withholds(a)
			return !withheld
		})
	})
}

// sooner returns the shorter of two delays, of which 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
