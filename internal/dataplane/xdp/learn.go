// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
)

// learns reports whether the step to the ring that v desires has to wait, and
// until when: UDP has no first packet to tell new flows by, so flows that the
// step would move are recorded first (DESIGN.md §5.2). A step that a dead server
// or a lost next hop asks for doesn't wait, nor does the first one after there was
// no backend, nor one that changes of mind have kept waiting for twice the time.
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
	for _, e := range v.ring.Entries {
		n := tracking.Slot(e)
		if int(n) < len(s.now.slots) && s.now.slots[n].usable() && !v.slots[n].usable() {
			return true
		}
	}
	return false
}

// awaitLearned asks for another Update when the flows have been learned.
func (p *Plane) awaitLearned(vip lb.VIP, s *service, now time.Duration) {
	if s.now.learned == 0 {
		s.learning = 0
		return
	}
	if s.learning == 0 {
		s.learning = now
	}
	time.AfterFunc(s.now.learned-now+time.Millisecond, func() { p.stale.Add(vip) })
}
