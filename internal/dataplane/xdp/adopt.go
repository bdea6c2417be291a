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
	if err := v.properties.adopt(t, number, &raw, v.slots); err != nil {
		return nil, err
	}
	s := &service{
		now:      v,
		number:   table.Extent{Base: number, Size: 1},
		active:   uint32(raw.Active & 1),
		features: program.AllFeatures, // as long as only an earlier agent knows
		gone:     dataplane.Traffic{Packets: detail.Gone.Packets, Bytes: detail.Gone.Bytes, NewFlows: detail.GoneFlows},
		flows:    flowCounts{forgotten: detail.Forgotten},
	}
	return s, s.reserve(t)
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
	v := &version{
		ring:     tracking.Adopt(entries, previous, now),
		entries:  table.Extent{Base: view.RingBase, Size: table.Chunks(view.RingSize, int(view.Slots))},
		previous: table.Extent{Base: view.PreviousBase, Size: table.Chunks(view.PreviousSize, int(view.Slots))},
		table:    table.Extent{Base: view.BackendBase, Size: uint32(view.Slots)},
		counters: table.Extent{Base: view.StatsBase, Size: uint32(view.Slots)},
		slots:    make([]slot, view.Slots),
		flags:    table.BalancerViewFlag(view.Flags),
	}
	for i := range v.slots {
		one := &v.slots[i]
		if one.Backend, one.detail, err = t.ReadBackend(view.BackendBase + uint32(i)); err != nil {
			return nil, err
		}
		one.wasUsable = one.usable()
		one.device = one.has(table.BalancerBackendFlagBACKEND_HANDOVER)
		if one.newFlowsBefore, err = t.NewFlowsBefore(view.StatsBase + uint32(i)); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// reserve marks the elements of an adopted service as used.
func (s *service) reserve(t *table.Tables) error {
	if err := t.Numbers.Reserve(s.number); err != nil {
		return err
	}
	for _, m := range s.now.memory(t) {
		if err := m.Reserve(m.extent); err != nil {
			return err
		}
	}
	return t.Counters.Reserve(s.now.counters)
}
