// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
)

// stageRing takes the step to the ring that is desired now, or prepares it.
func (p *Plane) stageRing(s *service, v *version, pl plan) (err error) {
	if !v.builtFrom(pl.ring, pl.size) {
		if pl.indexes == nil { // the version that has this ring was deleted after the plan was made, or before
			if pl.indexes, err = maglev.Build(p.config.Seed, pl.size, pl.ring); err != nil {
				return err
			}
		}
		v.built, v.size, v.desired = pl.ring, pl.size, make([]uint16, len(pl.indexes))
		for i, index := range pl.indexes {
			v.desired[i] = v.numbers[pl.ring[index].ID]
		}
	}
	now := p.clock()
	noPast, err := s.hasNoPast(p.tables, now)
	if err != nil {
		return err
	}
	if noPast || p.unread {
		if !slices.Equal(v.ring.Entries, v.desired) {
			v.ring = (&tracking.Ring{}).Next(v.desired, now)
		}
		return nil
	}
	if wait, learned := s.learns(v, pl.svc, now); wait {
		v.ring, v.learned = v.ring.Learn(v.desired, now), learned
		return nil
	}
	v.ring = v.ring.Next(v.desired, now)
	return nil
}

// builtFrom reports whether Build would make the version's ring of these.
func (v *version) builtFrom(ring []maglev.Backend, size int) bool {
	return v.built != nil && v.size == size && slices.Equal(v.built, ring)
}

// learns reports whether the step to the ring that v desires has to wait, and
// until when: UDP has no first packet that marks new flows, so flows that the step
// would move are recorded first. A step because of a dead server or a lost next hop
// doesn't wait, nor does the first one after there was no backend, nor one that
// further changes have delayed for twice the time.
func (s *service) learns(v *version, svc *lb.Service, now time.Duration) (wait bool, learned time.Duration) {
	if svc.Protocol != lb.UDP || svc.Forward == lb.NAT || svc.Learn == 0 || !s.serves(v) || s.lost(v) {
		return false, 0
	}
	learned, all := v.ring.Learned(v.desired, svc.Learn)
	if !all {
		learned = now + svc.Learn
	}
	if s.learning != 0 {
		learned = min(learned, s.learning+2*svc.Learn)
	}
	return now < learned, learned
}

// serves reports whether a backend on the ring could be used until now, so that
// there may be flows to learn.
func (s *service) serves(v *version) bool {
	return slices.ContainsFunc(v.ring.Entries, func(e uint16) bool {
		n := tracking.Slot(e)
		return int(n) < len(s.now.slots) && s.now.slots[n].usable()
	})
}

// lost reports whether a backend on the ring can't be used any more.
func (s *service) lost(v *version) bool {
	return slices.ContainsFunc(v.ring.Entries, func(e uint16) bool {
		n := tracking.Slot(e)
		return int(n) < len(s.now.slots) && s.now.slots[n].usable() && !v.slots[n].usable()
	})
}

// startTime is how long a service starts. In that time the first checks of its backends succeed and
// their neighbours answer, one after another.
const startTime = 3 * time.Second

// hasNoPast reports whether the next ring of a service has no past: the service starts, and no
// packet was balanced by its rings so far. Other balancers didn't have these rings, and their flows,
// if they come here, would be taken for older than the change. Later a ring has a past also without
// packets, as the other balancers have the same.
func (s *service) hasNoPast(t *table.Tables, now time.Duration) (bool, error) {
	if now >= s.started {
		return false, nil
	}
	counters := t.CounterReader()
	packets := s.gone.Packets
	for i := range s.now.slots {
		if one := &s.now.slots[i]; one.taken() {
			counted, err := counters.Read(s.now.counters.Base + uint32(i))
			if err != nil {
				return false, err
			}
			packets += counted.Sub(one.before()).Packets
		}
	}
	return packets == 0, nil
}

// awaitLearned calls update when the flows have been learned.
func (s *service) awaitLearned(now time.Duration, update func()) {
	if s.now.learned == 0 {
		s.learning = 0
		return
	}
	if s.learning == 0 {
		s.learning = now
	}
	time.AfterFunc(s.now.learned-now+time.Millisecond, update)
}
