// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/store"
)

// group are the services that one prefix is announced for.
type group struct {
	verdicts []verdict
	policy   *policy
}

// group finds the prefix of every service.
func (l *ledger) group(w *World) map[netip.Prefix]*group {
	groups := map[netip.Prefix]*group{}
	statuses := w.Programmed
	for i := range w.Desired.Services {
		e := &w.Desired.Services[i]
		var status *reconcile.Status
		if status, statuses = seek(statuses, e); status != nil {
			statuses = statuses[1:]
		}
		prefix, policy := l.place(e.Configured.VIP.Address)
		g := groups[prefix]
		if g == nil {
			g = &group{policy: policy}
			groups[prefix] = g
		}
		g.verdicts = append(g.verdicts, w.judge(e, status))
	}
	for _, g := range groups {
		g.dropLocal()
	}
	return groups
}

// seek returns the status of a service, nil if there is none yet, and the
// statuses that are not before it.
func seek(statuses []reconcile.Status, e *store.Entry) (*reconcile.Status, []reconcile.Status) {
	for len(statuses) > 0 {
		switch statuses[0].VIP.Compare(e.Configured.VIP) {
		case 0:
			return &statuses[0], statuses
		case 1:
			return nil, statuses
		}
		statuses = statuses[1:]
	}
	return nil, nil
}

// dropLocal leaves out the services that routes don't lead to, unless there are
// no others: then they say why there is no route.
func (g *group) dropLocal() {
	local := func(v verdict) bool { return v.local }
	if slices.ContainsFunc(g.verdicts, func(v verdict) bool { return !v.local }) {
		g.verdicts = slices.DeleteFunc(g.verdicts, local)
	}
}

// sum is what the services together stand for, and how many are kept back.
func (g *group) sum() (most standing, withheld int) {
	for _, v := range g.verdicts {
		most = max(most, v.standing)
		if v.withheld {
			withheld++
		}
	}
	return most, withheld
}

// complete reports whether no service lacks anything that may come yet.
func (g *group) complete() bool {
	return !slices.ContainsFunc(g.verdicts, func(v verdict) bool {
		return v.standing == absent && !v.withheld && !v.local
	})
}

func (g *group) names() []string {
	names := make([]string, len(g.verdicts))
	for i, v := range g.verdicts {
		names[i] = v.service
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// reason says why the prefix is not announced, or will not be; empty while a
// service stands for it. An aggregate may have thousands of services: some will
// do.
func (g *group) reason() string {
	const most = 3
	var reasons []string
	for _, v := range g.verdicts {
		if v.standing == serving {
			return ""
		}
		if !slices.Contains(reasons, v.reason) && len(reasons) <= most {
			reasons = append(reasons, v.reason)
		}
	}
	if len(reasons) > most {
		reasons[most] = fmt.Sprintf("and others of %d services", len(g.verdicts))
	}
	return strings.Join(reasons, "; ")
}

// policy is one of bgp.Config's, nil for that of a VIP that none has.
type policy bgp.Policy

// place returns the prefix that announces a VIP, and how.
func (l *ledger) place(vip netip.Addr) (netip.Prefix, *policy) {
	host := netip.PrefixFrom(vip, vip.BitLen())
	for i := range l.policies {
		for _, prefix := range l.policies[i].Prefixes {
			if !prefix.Contains(vip) {
				continue
			}
			if l.policies[i].Aggregate {
				return prefix, (*policy)(&l.policies[i])
			}
			return host, (*policy)(&l.policies[i])
		}
	}
	return host, nil
}

// route is how a prefix is announced.
func (p *policy) route(prefix netip.Prefix) bgp.Route {
	r := bgp.Route{Prefix: prefix}
	if p == nil {
		return r
	}
	r.NextHop, r.Attributes = p.NextHop6, p.Attributes
	if prefix.Addr().Is4() {
		r.NextHop = p.NextHop4
	}
	return r
}
