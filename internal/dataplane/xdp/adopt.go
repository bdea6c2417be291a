// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
)

// adopt reads the services that an earlier agent left in the tables, so that their
// elements are not allocated again and their counters continue.
func (p *Plane) adopt() error {
	if err := p.tables.Adopt(); err != nil {
		return err
	}
	err := p.tables.VIPs.Each(func(key table.BalancerVipKey, number uint32) error {
		vip := table.VIPOf(key)
		s, err := adoptService(p.tables, number, p.clock())
		if err != nil {
			return fmt.Errorf("vip %s: adopt: %w", vip, err)
		}
		p.services[vip] = s
		p.programs.Recount(0, s.features)
		return p.addresses.show(vip, s.addressFlags())
	})
	if err != nil {
		return err
	}
	// Clients whose backends have left are forgotten before their generations, which
	// this agent can't know, are given again.
	return errors.Join(p.tables.Disown(), p.sweeper.sweepClients(), p.addresses.disown())
}

func adoptService(t *table.Tables, number uint32, now time.Duration) (*service, error) {
	raw, err := t.ReadService(number)
	if err != nil {
		return nil, err
	}
	detail, err := table.ReadServiceDetail(t, number)
	if err != nil {
		return nil, err
	}
	v, err := adoptVersion(t, raw.View[raw.Active&1], now)
	if err != nil {
		return nil, err
	}
	at, err := t.AdoptService(number, &raw, func(record uint32) bool { return named(v.slots, record) != nil })
	v.options = at.Options
	return &service{
		Service:  at,
		now:      v,
		features: program.AllFeatures, // as long as only an earlier agent knows
		gone:     dataplane.Traffic{Packets: detail.Gone.Packets, Bytes: detail.Gone.Bytes, NewFlows: detail.GoneFlows},
		flows:    flowCounts{forgotten: detail.Forgotten},
	}, err
}

func adoptVersion(t *table.Tables, view table.BalancerView, now time.Duration) (*version, error) {
	entries, err := t.ReadRing(view.RingBase, view.RingSize, int(view.Slots))
	if err != nil {
		return nil, err
	}
	previous, err := t.ReadRing(view.PreviousBase, view.PreviousSize, int(view.Slots))
	if err != nil {
		return nil, err
	}
	v := &version{ring: tracking.Adopt(entries, previous, now), slots: make([]slot, view.Slots), flags: table.BalancerViewFlag(view.Flags)}
	for i := range v.slots {
		one := &v.slots[i]
		if one.Backend, one.Detail, err = t.ReadBackend(view.BackendBase + uint32(i)); err != nil {
			return nil, err
		}
		one.wasUsable = one.usable()
		one.device = one.has(table.BalancerBackendFlagBACKEND_HANDOVER)
		if one.NewFlowsBefore, err = t.NewFlowsBefore(view.StatsBase + uint32(i)); err != nil {
			return nil, err
		}
	}
	return v, nil
}
