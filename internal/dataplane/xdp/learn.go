// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
)

// recording is set if all flows of a service are recorded, not only those that a
// change of the ring may move.
type recording struct {
	flagged
	all bool
}

// describe records all flows of remembered clients, as the ring doesn't give their
// backends.
func (r *recording) describe(svc *lb.Service) {
	r.all = svc.Forward != lb.NAT && (svc.Tracking == lb.TrackingFull || clientIdle(svc) > 0)
}

func (r *recording) flags() table.BalancerViewFlag {
	return when(r.all, table.BalancerViewFlagVIEW_TRACK_ALL)
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
