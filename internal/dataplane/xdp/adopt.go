// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
)

// adopt reads the services that an earlier agent left in the tables, so that
// what they use is not handed out again and their counters go on.
func (p *Plane) adopt() error {
	if err := p.sources.adopt(); err != nil {
		return fmt.Errorf("table sources: %w", err)
	}
	ids, err := p.adoptServers()
	if err != nil {
		return fmt.Errorf("table servers: %w", err)
	}
	err = p.kernel.eachVIP(func(key balancerVipKey, number uint32) error {
		vip := vipOf(key)
		s, err := p.adoptService(number, ids[number])
		if err != nil {
			return fmt.Errorf("vip %s: adopt: %w", vip, err)
		}
		p.services[vip] = s
		p.needs.replace(0, s.features)
		return nil
	})
	if err != nil {
		return err
	}
	p.sources.disown()
	if err := errors.Join(p.disownServers(ids), p.adoptClients()); err != nil {
		return err
	}
	return p.adoptAddresses()
}

func (p *Plane) adoptService(number uint32, ids servers) (*service, error) {
	raw, err := read[balancerService](p.kernel.services, number)
	if err != nil {
		return nil, err
	}
	now, err := p.adoptVersion(raw.View[raw.Active&1])
	if err != nil {
		return nil, err
	}
	if now.flags&uint16(balancerViewFlagVIEW_SOURCES) != 0 {
		if now.sources, err = p.sources.claim(raw.Sources[raw.Active&1]); err != nil {
			return nil, err
		}
	}
	now.limits = limits{raw.Limit.Interval, raw.Limit.SourceInterval}
	now.natIdle, now.round = raw.NatIdle, raw.Round
	idle, err := read[uint64](p.kernel.clientIdle, number)
	if err != nil {
		return nil, err
	}
	now.clientIdle = time.Duration(idle)
	now.quic, now.servers = raw.Quic, ids
	now.servers = now.heldServers()
	s := &service{
		now:      now,
		number:   extent{number, 1},
		active:   raw.Active & 1,
		features: allFeatures, // as long as only an earlier agent knows
		gone:     dataplane.Traffic{Packets: raw.Gone.Packets, Bytes: raw.Gone.Bytes, NewFlows: raw.GoneFlows},
		flows:    flowCounts{forgotten: raw.Forgotten},
	}
	return s, p.reserve(s)
}

func (p *Plane) adoptVersion(view balancerView) (*version, error) {
	entries, err := p.kernel.readRing(view.RingBase, view.RingSize)
	if err != nil {
		return nil, err
	}
	previous, err := p.kernel.readRing(view.PreviousBase, view.PreviousSize)
	if err != nil {
		return nil, err
	}
	v := &version{
		ring:     tracking.Adopt(entries, previous, p.clock()),
		entries:  extent{view.RingBase, chunks(view.RingSize)},
		previous: extent{view.PreviousBase, chunks(view.PreviousSize)},
		table:    extent{view.BackendBase, uint32(view.Slots)},
		slots:    make([]slot, view.Slots),
		flags:    view.Flags,
	}
	for i := range v.slots {
		one := &v.slots[i]
		if one.balancerBackend, err = read[balancerBackend](p.kernel.tables.backends, view.BackendBase+uint32(i)); err != nil {
			return nil, err
		}
		one.Index = 0 // writing sets it
		one.wasUsable = one.usable()
		if one.detail, err = read[balancerBackendDetail](p.kernel.details, view.BackendBase+uint32(i)); err != nil {
			return nil, err
		}
		if one.newFlowsBefore, err = read[uint64](p.kernel.before, one.Stats); err != nil {
			return nil, err
		}
		p.generation = max(p.generation, one.Generation)
	}
	return v, nil
}

// reserve takes what an adopted service uses out of the free places.
func (p *Plane) reserve(s *service) error {
	if err := p.numbers.reserve(s.number); err != nil {
		return err
	}
	if err := p.rings.reserve(s.now.entries); err != nil {
		return err
	}
	if err := p.rings.reserve(s.now.previous); err != nil {
		return err
	}
	if err := p.backends.reserve(s.now.table); err != nil {
		return err
	}
	for i := range s.now.slots {
		if one := &s.now.slots[i]; one.taken() {
			if err := p.traffic.reserve(one.traffic()); err != nil {
				return err
			}
		}
	}
	return nil
}
