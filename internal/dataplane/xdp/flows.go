// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Flows lists recorded flows and NAT sessions. The tables are read without holding the plane, so
// that a million records keep no change waiting.
func (p *Plane) Flows(ctx context.Context, query dataplane.FlowQuery) (dataplane.Flows, error) {
	vips, err := p.vipsByNumber(ctx)
	if err != nil {
		return dataplane.Flows{}, err
	}
	now, err := flowClock()
	if err != nil {
		return dataplane.Flows{}, err
	}
	out := dataplane.Flows{Capacity: p.kernel.capacity.Flows + p.kernel.capacity.Sessions}
	latest := latestFlows{now: now, limit: query.Limit}
	err = p.kernel.eachRemembered(func(flow *balancerFlow) {
		out.Records++
		vip, known := vips[flow.Service]
		if known && wanted(query, vip, unmapped(flow.Client)) {
			out.Matching++
			latest.add(flow)
		}
	})
	if err != nil {
		return dataplane.Flows{}, err
	}
	out.Flows, err = p.nameFlows(ctx, latest, vips)
	return out, err
}

func (p *Plane) vipsByNumber(ctx context.Context) (map[uint32]lb.VIP, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	vips := make(map[uint32]lb.VIP, len(p.services))
	for vip, s := range p.services {
		vips[s.number.base] = vip
	}
	return vips, nil
}

func wanted(query dataplane.FlowQuery, vip lb.VIP, client netip.Addr) bool {
	return (query.VIP == lb.VIP{} || query.VIP == vip) && (!query.Client.IsValid() || query.Client.Contains(client))
}

// latestFlows keeps the records that were seen last.
type latestFlows struct {
	now   uint32
	limit int
	flows []balancerFlow // while they are collected, up to twice the limit
}

func (l *latestFlows) add(flow *balancerFlow) {
	l.flows = append(l.flows, *flow)
	if len(l.flows) >= 2*max(l.limit, 1) {
		l.cut()
	}
}

// cut sorts by age, then client, and drops what is beyond the limit.
func (l *latestFlows) cut() {
	slices.SortFunc(l.flows, func(a, b balancerFlow) int {
		return cmp.Or(
			cmp.Compare(flowAge(l.now, a.Seen), flowAge(l.now, b.Seen)),
			slices.Compare(a.Client[:], b.Client[:]),
			cmp.Compare(wirePort(a.Port), wirePort(b.Port)),
			cmp.Compare(a.Service, b.Service),
		)
	})
	l.flows = l.flows[:min(len(l.flows), l.limit)]
}

// nameFlows puts records into words. Those of a service that has left since
// they were read are left out.
func (p *Plane) nameFlows(ctx context.Context, latest latestFlows, vips map[uint32]lb.VIP) ([]dataplane.Flow, error) {
	latest.cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	flows := make([]dataplane.Flow, 0, len(latest.flows))
	for i := range latest.flows {
		f := &latest.flows[i]
		vip := vips[f.Service]
		s, known := p.services[vip]
		if !known || s.number.base != f.Service {
			continue
		}
		flows = append(flows, dataplane.Flow{
			VIP:     vip,
			Client:  netip.AddrPortFrom(unmapped(f.Client), wirePort(f.Port)),
			Backend: s.recorded(f.Backend),
			Age:     flowAge(latest.now, f.Seen),
			Closing: f.Closing != 0,
		})
	}
	return flows, nil
}
