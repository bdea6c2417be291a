// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"net/netip"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// adopt reads the services that an earlier agent left in the tables, so that
// what they use is not handed out again and their counters go on.
func (p *Plane) adopt() error {
	var key balancerVipKey
	var number uint32
	it := p.program.maps.Vips.Iterate()
	for it.Next(&key, &number) {
		vip := vipOf(key)
		s, err := p.adoptService(number)
		if err != nil {
			return fmt.Errorf("vip %s: adopt: %w", vip, err)
		}
		p.services[vip] = s
	}
	return it.Err()
}

func (p *Plane) adoptService(number uint32) (*service, error) {
	raw, err := read[balancerService](p.program.services, number)
	if err != nil {
		return nil, err
	}
	view := raw.View[raw.Active&1]
	s := &service{
		number:  extent{number, 1},
		active:  raw.Active & 1,
		ring:    extent{view.RingBase, chunks(view.RingSize)},
		size:    view.RingSize,
		flags:   view.Flags,
		table:   extent{view.BackendBase, uint32(view.Slots)},
		traffic: make(map[lb.BackendID]extent, view.Slots),
		gone:    dataplane.Traffic{Packets: raw.Gone.Packets, Bytes: raw.Gone.Bytes},
	}
	for i := range uint32(view.Slots) {
		b, err := read[balancerBackend](p.program.tables.backends, view.BackendBase+i)
		if err != nil {
			return nil, err
		}
		d, err := read[balancerBackendDetail](p.program.details, view.BackendBase+i)
		if err != nil {
			return nil, err
		}
		s.entries = append(s.entries, slot{b, d})
		s.traffic[netip.AddrPortFrom(unmapped(d.Address), wirePort(d.Port))] = extent{b.Stats, 1}
	}
	return s, p.reserve(s)
}

// reserve takes what an adopted service uses out of the free places.
func (p *Plane) reserve(s *service) error {
	if err := p.numbers.reserve(s.number); err != nil {
		return err
	}
	if err := p.rings.reserve(s.ring); err != nil {
		return err
	}
	if err := p.backends.reserve(s.table); err != nil {
		return err
	}
	for _, t := range s.traffic {
		if err := p.traffic.reserve(t); err != nil {
			return err
		}
	}
	return nil
}
