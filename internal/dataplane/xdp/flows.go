// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// Flows lists recorded flows and NAT sessions. The tables are read without holding the plane, so
// that a million records keep no change waiting.
func (p *Plane) Flows(ctx context.Context, query dataplane.FlowQuery) (dataplane.Flows, error) {
	owners, err := p.owners(ctx)
	if err != nil {
		return dataplane.Flows{}, err
	}
	now, err := table.FlowClock()
	if err != nil {
		return dataplane.Flows{}, err
	}
	out := dataplane.Flows{Capacity: p.tables.Capacity.Flows + p.tables.Capacity.Sessions}
	latest := latestFlows{now: now, limit: query.Limit}
	count := func(flow *table.BalancerFlow) {
		out.Records++
		o := owners[flow.Service]
		if o != nil && wanted(query, o.vip, table.Unmapped(flow.Client)) {
			out.Matching++
			latest.add(flow)
		}
	}
	err = p.tables.EachFlow(func(_ uint64, flow *table.BalancerFlow) { count(flow) })
	if err == nil {
		p.tables.EachSession(func(_ uint64, s *table.BalancerNatSession) {
			if !table.IsReply(s) {
				flow := table.AsFlow(s)
				count(&flow)
			}
		})
	}
	if err != nil {
		return dataplane.Flows{}, err
	}
	latest.cut()
	out.Flows = make([]dataplane.Flow, len(latest.flows))
	for i, f := range latest.flows {
		o := owners[f.Service]
		out.Flows[i] = dataplane.Flow{
			VIP:     o.vip,
			Client:  netip.AddrPortFrom(table.Unmapped(f.Client), table.WirePort(f.Port)),
			Backend: o.now.recorded(f.Backend),
			Age:     table.FlowAge(latest.now, f.Seen),
			Closing: f.Closing != 0,
		}
	}
	return out, nil
}

func wanted(query dataplane.FlowQuery, vip lb.VIP, client netip.Addr) bool {
	return (query.VIP == lb.VIP{} || query.VIP == vip) && (!query.Client.IsValid() || query.Client.Contains(client))
}

// latestFlows keeps the records that were seen last.
type latestFlows struct {
	now   uint32
	limit int
	flows []table.BalancerFlow // while they are collected, up to twice the limit
}

func (l *latestFlows) add(flow *table.BalancerFlow) {
	l.flows = append(l.flows, *flow)
	if len(l.flows) >= 2*max(l.limit, 1) {
		l.cut()
	}
}

// cut sorts by age, then client, and drops flows beyond the limit.
func (l *latestFlows) cut() {
	slices.SortFunc(l.flows, func(a, b table.BalancerFlow) int {
		return cmp.Or(
			cmp.Compare(table.FlowAge(l.now, a.Seen), table.FlowAge(l.now, b.Seen)),
			slices.Compare(a.Client[:], b.Client[:]),
			cmp.Compare(table.WirePort(a.Port), table.WirePort(b.Port)),
			cmp.Compare(a.Service, b.Service),
		)
	})
	l.flows = l.flows[:min(len(l.flows), l.limit)]
}
