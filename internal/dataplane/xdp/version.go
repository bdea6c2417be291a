// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"slices"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
)

// version is the next state of a service: written to free places of the
// tables, not yet visible.
type version struct {
	number  extent // only of a new service
	ring    extent // the present one's if the ring doesn't change
	size    uint32
	flags   uint16
	entries []slot
	table   extent
	traffic map[lb.BackendID]extent
	fresh   []extent // counters that only this version has
	built   []maglev.Backend
	shares  []int
}

// view is the version as the program reads it.
func (v *version) view() balancerView {
	return balancerView{
		RingBase:    v.ring.base,
		RingSize:    v.size,
		BackendBase: v.table.base,
		Slots:       uint16(len(v.entries)),
		Flags:       v.flags,
	}
}

// same reports whether the version is what packets see already.
func (v *version) same(s *service) bool {
	return s.built != nil && v.ring == s.ring && v.flags == s.flags && slices.Equal(v.entries, s.entries)
}

// stage writes the next version of s. On an error nothing is taken.
func (p *Plane) stage(s *service, pl plan) (*version, error) {
	v := &version{traffic: make(map[lb.BackendID]extent, len(pl.backends)), built: pl.ring}
	if pl.svc.Affinity == lb.AffinityClient {
		v.flags = uint16(balancerViewFlagVIEW_AFFINITY_CLIENT)
	}
	err := errors.Join(
		p.stageNumber(s, v),
		p.stageRing(s, v, pl),
		p.stageTraffic(s, v, pl),
		p.stageEntries(v, pl),
	)
	if err != nil {
		p.unstage(s, v)
		return nil, err
	}
	return v, nil
}

// unstage gives back what only the version uses; no packet has seen it.
func (p *Plane) unstage(s *service, v *version) {
	p.numbers.release(v.number)
	if v.ring != s.ring {
		p.rings.release(v.ring)
	}
	p.backends.release(v.table)
	for _, e := range v.fresh {
		p.traffic.release(e)
	}
}

// take allocates from an arena; errBusy if a grace period may free enough.
func (p *Plane) take(a *arena, size uint32) (extent, error) {
	e, busy, err := a.alloc(size)
	if err != nil && busy {
		return extent{}, errBusy{p.grace.now()}
	}
	return e, err
}

func (p *Plane) stageNumber(s *service, v *version) (err error) {
	if s.number.size == 0 {
		v.number, err = p.take(p.numbers, 1)
	}
	return err
}

// stageRing keeps the present ring if the same backends are usable with the
// same weights.
func (p *Plane) stageRing(s *service, v *version, pl plan) error {
	if s.built != nil && slices.Equal(s.built, pl.ring) {
		v.ring, v.size, v.shares = s.ring, s.size, s.shares
		return nil
	}
	ring, err := maglev.Build(p.seed, pl.size, pl.ring)
	if err != nil {
		return err
	}
	v.size = uint32(len(ring))
	v.shares = make([]int, len(pl.ring))
	for _, i := range ring {
		v.shares[i]++
	}
	if v.ring, err = p.take(p.rings, chunks(v.size)); err != nil {
		return err
	}
	return p.program.writeRing(v.ring.base, ring)
}

// stageTraffic gives every backend its counter: the one that it has, or a new
// one that begins at zero.
func (p *Plane) stageTraffic(s *service, v *version, pl plan) error {
	for _, b := range pl.backends {
		t, known := s.traffic[b.ID()]
		if !known {
			var err error
			if t, err = p.take(p.traffic, 1); err != nil {
				return err
			}
			v.fresh = append(v.fresh, t)
			if err := p.program.clearTraffic(t.base); err != nil {
				return err
			}
		}
		v.traffic[b.ID()] = t
	}
	return nil
}

// stageEntries writes the backends. One that can't be used keeps its place, so
// that ring indexes stay those of the sorted backends; the ring never names it.
func (p *Plane) stageEntries(v *version, pl plan) (err error) {
	if len(v.traffic) != len(pl.backends) {
		return nil // stageTraffic has said why
	}
	v.entries = make([]slot, len(pl.backends))
	for i, b := range pl.backends {
		v.entries[i] = entry(pl.svc, b, pl.hops[i].Hop, v.traffic[b.ID()].base)
	}
	if v.table, err = p.take(p.backends, uint32(len(v.entries))); err != nil {
		return err
	}
	return p.program.writeBackends(v.table.base, v.entries)
}

// programmed describes the version in the order of the service's backends.
func (v *version) programmed(pl plan) dataplane.Programmed {
	states := make(map[lb.BackendID]dataplane.BackendState, len(pl.backends))
	for i, b := range pl.backends {
		st := dataplane.BackendState{ID: b.ID(), RingEntries: v.share(i)}
		switch err := pl.hops[i].Err; {
		case err != nil:
			st.Reason = err.Error()
		case b.Weight == 0:
			st.Reason = "weight is 0"
			st.NextHop = describe(pl.svc, b, pl.hops[i].Hop)
		default:
			st.InUse = true
			st.NextHop = describe(pl.svc, b, pl.hops[i].Hop)
		}
		states[b.ID()] = st
	}
	out := dataplane.Programmed{RingSize: int(v.size), Backends: make([]dataplane.BackendState, len(pl.svc.Backends))}
	for i, b := range pl.svc.Backends {
		out.Backends[i] = states[b.ID()]
	}
	return out
}

// share is the number of ring entries of backend i.
func (v *version) share(i int) int {
	if v.size == 0 {
		return 0
	}
	return v.shares[i]
}
