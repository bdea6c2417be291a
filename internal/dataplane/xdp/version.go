// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
)

// version is one state of a service in the tables. It is immutable once packets
// see it. The next version shares with it what doesn't change.
type version struct {
	ring     *tracking.Ring
	entries  extent // where the ring lies
	previous extent // where the ring's past lies
	slots    []slot
	table    extent // where the slots lie
	flags    uint16
	sources  sourceList
	limits   limits
	quic     balancerQuic
	servers  servers
	natIdle  uint32 // see natIdle
	round    balancerRound
	// clientIdle is how long clients are remembered; 0 if they aren't.
	clientIdle time.Duration
	// built is what the ring was last built from, size how large, and desired the
	// slots that came out; built is nil if the ring was adopted.
	built   []maglev.Backend
	size    int
	desired []uint16
	// learned is when the flows that the step from ring to desired would move
	// have been recorded; 0 if there is nothing to wait for.
	learned time.Duration
	// fresh are counters that only this version has, as long as nobody sees it.
	fresh []extent
}

// view is the version as the program reads it.
func (v *version) view() balancerView {
	return balancerView{
		RingBase:     v.entries.base,
		RingSize:     uint32(len(v.ring.Entries)),
		PreviousBase: v.previous.base,
		PreviousSize: uint32(len(v.ring.Previous)),
		BackendBase:  v.table.base,
		Slots:        uint16(len(v.slots)),
		Flags:        v.flags,
	}
}

// same reports whether packets can't tell two versions apart.
func (v *version) same(o *version) bool {
	return v.ring == o.ring && v.table == o.table && v.flags == o.flags &&
		v.sources.number == o.sources.number && v.limits == o.limits && v.natIdle == o.natIdle && v.round == o.round && v.clientIdle == o.clientIdle && sameQUIC(v, o)
}

// next begins the version after v, equal to it.
func (v *version) next() *version {
	n := *v
	n.slots = slices.Clone(v.slots)
	n.fresh, n.learned = nil, 0
	return &n
}

// stage writes the next version of s to free places of the tables. On an error
// nothing is taken.
func (p *Plane) stage(s *service, pl plan) (*version, error) {
	v := s.now.next()
	v.flags, v.limits, v.natIdle = viewFlags(pl), limitsOf(pl.svc.Limits), natIdle(pl.svc)
	v.clientIdle = clientIdle(pl.svc)
	numbers, err := p.stageSlots(v, pl)
	if err == nil {
		v.round = roundOf(v.slots)
		v.stageServers(pl.svc)
		err = p.stageRing(s, v, pl, numbers)
	}
	if err == nil {
		err = p.stageTables(s, v)
	}
	if err == nil {
		err = p.stageSources(s, v, pl)
	}
	if err != nil {
		p.unstage(s, v)
		return nil, err
	}
	return v, nil
}

// unstage gives back what only the version uses; no packet has seen it.
func (p *Plane) unstage(s *service, v *version) {
	if v.entries != s.now.entries {
		p.rings.release(v.entries)
	}
	if v.previous != s.now.previous {
		p.rings.release(v.previous)
	}
	if v.table != s.now.table {
		p.backends.release(v.table)
	}
	if v.sources.number != s.now.sources.number {
		p.sources.release(v.sources)
	}
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

func viewFlags(pl plan) uint16 {
	var flags balancerViewFlag
	if pl.svc.Affinity == lb.AffinityClient {
		flags |= balancerViewFlagVIEW_AFFINITY_CLIENT
	}
	if pl.svc.Affinity == lb.AffinityQUIC {
		flags |= balancerViewFlagVIEW_QUIC
	}
	if pl.svc.Forward.Translates() {
		flags |= balancerViewFlagVIEW_NAT
	}
	if pl.svc.Forward == lb.DNAT {
		flags |= balancerViewFlagVIEW_DNAT
	}
	if clientIdle(pl.svc) > 0 {
		flags |= balancerViewFlagVIEW_REMEMBER_CLIENTS
	}
	// The ring doesn't say where the flows of a remembered client are.
	if pl.svc.Forward != lb.NAT && (pl.svc.Tracking == lb.TrackingFull || clientIdle(pl.svc) > 0) {
		flags |= balancerViewFlagVIEW_TRACK_ALL
	}
	if pl.svc.Health != nil && pl.svc.Health.Passive {
		flags |= balancerViewFlagVIEW_PASSIVE
	}
	if pl.svc.Limits != (lb.FlowLimits{}) {
		flags |= balancerViewFlagVIEW_LIMITS
	}
	flags |= sharedFlags(pl.svc)
	if pl.svc.Unavailable == lb.Reject {
		flags |= balancerViewFlagVIEW_REJECT
	}
	if !slices.ContainsFunc(pl.ring, func(b maglev.Backend) bool { return b.Weight > 0 }) {
		flags |= balancerViewFlagVIEW_EMPTY
	}
	return uint16(flags)
}

// stageSlots gives each backend of the plan its slot's new content and returns
// the slots' numbers. One that left and whose slot has been freed since is left
// out.
func (p *Plane) stageSlots(v *version, pl plan) (map[lb.BackendID]uint16, error) {
	numbers := slotNumbers(v.slots)
	for i, b := range pl.backends {
		n, known := numbers[b.ID()]
		if !known && i >= len(pl.ring) {
			continue
		}
		if !known {
			var err error
			if n, err = p.seat(v); err != nil {
				return nil, err
			}
			numbers[b.ID()] = n
		}
		old := v.slots[n]
		v.slots[n] = entry(pl.svc, b, pl.hops[i].Hop, old)
		v.slots[n].unreached = pl.hops[i].Err
		v.slots[n].wasUsable = old.wasUsable || v.slots[n].usable()
		if pl.kept[i] {
			v.slots[n].backend = old.backend // still unknown
		}
	}
	present := make(map[lb.BackendID]bool, len(pl.ring))
	for _, b := range pl.ring {
		present[b.ID] = true
	}
	abandon(v.slots, present)
	return numbers, nil
}

// stageRing takes the step to the ring that is desired now, or prepares it.
func (p *Plane) stageRing(s *service, v *version, pl plan, numbers map[lb.BackendID]uint16) error {
	if v.built == nil || v.size != pl.size || !slices.Equal(v.built, pl.ring) {
		ring, err := maglev.Build(p.seed, pl.size, pl.ring)
		if err != nil {
			return err
		}
		for i, index := range ring {
			ring[i] = numbers[pl.ring[index].ID]
		}
		v.built, v.size, v.desired = pl.ring, pl.size, ring
	}
	now := p.clock()
	if wait, learned := s.learns(v, pl.svc, now); wait {
		v.ring, v.learned = v.ring.Learn(v.desired, now), learned
		return nil
	}
	v.ring = v.ring.Next(v.desired, now)
	return nil
}

// stageTables writes what differs from the present version.
func (p *Plane) stageTables(s *service, v *version) (err error) {
	for len(v.slots) > 0 && !v.slots[len(v.slots)-1].taken() {
		v.slots = v.slots[:len(v.slots)-1]
	}
	if v.ring != s.now.ring {
		if v.entries, err = p.stageEntries(v.ring.Entries); err != nil {
			v.entries = s.now.entries
			return err
		}
		if v.previous, err = p.stageEntries(v.ring.Previous); err != nil {
			v.previous = s.now.previous
			return err
		}
	}
	if sameSlots(v.slots, s.now.slots) {
		return nil
	}
	if v.table, err = p.take(p.backends, uint32(len(v.slots))); err != nil {
		v.table = s.now.table
		return err
	}
	return p.kernel.writeSlots(v.table.base, v.slots)
}

// stageSources writes the list of sources, if it is another one than now.
func (p *Plane) stageSources(s *service, v *version, pl plan) error {
	list, err := p.sources.stage(s.now.sources, pl.svc.Sources.Verdicts(pl.svc.Address))
	if err != nil {
		return err
	}
	v.sources = list
	if list.number.size > 0 {
		v.flags |= uint16(balancerViewFlagVIEW_SOURCES)
	}
	return nil
}

func (p *Plane) stageEntries(entries []uint16) (extent, error) {
	e, err := p.take(p.rings, chunks(uint32(len(entries))))
	if err != nil {
		return extent{}, err
	}
	if err := p.kernel.writeRing(e.base, entries); err != nil {
		p.rings.release(e)
		return extent{}, err
	}
	return e, nil
}

// programmed describes the version in the order of the service's backends.
func (v *version) programmed(pl plan) dataplane.Programmed {
	shares := make([]int, len(v.slots))
	for _, e := range v.ring.Entries {
		if n := tracking.Slot(e); n != tracking.None {
			shares[n]++
		}
	}
	numbers := slotNumbers(v.slots)
	states := make(map[lb.BackendID]dataplane.BackendState, len(pl.ring))
	for i, b := range pl.backends[:len(pl.ring)] {
		states[b.ID()] = backendState(pl.svc, b, pl.hops[i], shares[numbers[b.ID()]])
	}
	out := dataplane.Programmed{Backends: make([]dataplane.BackendState, len(pl.svc.Backends))}
	if v.flags&uint16(balancerViewFlagVIEW_EMPTY) == 0 {
		out.RingSize = len(v.ring.Entries)
	}
	for i, b := range pl.svc.Backends {
		out.Backends[i] = states[b.ID()]
	}
	return out
}

// backendState says whether a backend with so many ring entries is in use, and
// why not.
func backendState(svc *lb.Service, b lb.Backend, hop nexthop.Result, entries int) dataplane.BackendState {
	st := dataplane.BackendState{ID: b.ID(), RingEntries: entries}
	if hop.Err == nil {
		st.NextHop = describe(svc, b, hop.Hop)
	}
	switch {
	case b.Down:
		st.Reason = "unhealthy"
	case hop.Err != nil:
		st.Reason = hop.Err.Error()
	case b.Drained:
		st.Reason = "drained"
	case b.Weight == 0:
		st.Reason = "weight is 0"
	case entries == 0:
		st.Reason = "waits until the flows that it would move are learned"
	default:
		st.InUse = true
	}
	return st
}
