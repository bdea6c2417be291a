// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
)

// How long NAT sessions may be silent (enum nat_seconds of bpf/core/types.h).
const (
	sessionOpening = time.Duration(table.BalancerNatSecondsNAT_OPENING_SECONDS) * time.Second
	sessionClosing = time.Duration(table.BalancerNatSecondsNAT_CLOSING_SECONDS) * time.Second
	sessionOneWay  = time.Duration(table.BalancerNatSecondsNAT_ONE_WAY_SECONDS) * time.Second
	// sessionSync is how late the time of a session's second entry may be, with an idle
	// time-out of eight times that at least (NAT_SYNC of bpf/nat/session.h).
	sessionSync = time.Duration(1<<13) << table.FlowTimeShift
	// sessionTouch is how late a session's time may be.
	sessionTouch = time.Second + idleSlack
)

// sessionSweepInterval is how often sessions that are over are looked for, in one part of
// the tables after the other. A session that is over counts for nothing anyway; deleting
// it makes room.
const sessionSweepInterval = time.Second

// sessionIdle is how long a session of the service may be silent.
func (v *version) sessionIdle(s *table.BalancerNatSession) time.Duration {
	established := time.Duration(v.options.NatIdle) << table.FlowTimeShift
	switch table.BalancerNatState(s.State) {
	case table.BalancerNatStateNAT_OPENING, table.BalancerNatStateNAT_ANSWERED:
		return sessionOpening
	case table.BalancerNatStateNAT_CLOSING:
		return sessionClosing
	case table.BalancerNatStateNAT_ONE_WAY:
		return min(established, sessionOneWay)
	default:
		if established >= 8*sessionSync {
			established += sessionSync
		}
		return established
	}
}

// translates reports whether packets of the service are translated.
func (v *version) translates() bool { return v.has(table.BalancerViewFlagVIEW_NAT) }

// keepsSession reports whether a session is alive; it isn't without a service.
func (o *owner) keepsSession(s *table.BalancerNatSession, now uint32) bool {
	return o != nil && o.now.translates() && table.FlowAge(now, s.Seen) <= o.now.sessionIdle(s)+sessionTouch &&
		named(o.now.slots, s.Backend) != nil
}

// sessionPass is how far the sweep of sessions has come: the next part, and the sessions
// that were counted in those before, by service.
type sessionPass struct {
	part   table.Part
	counts map[*service]int
}

// sweepSessions deletes the sessions that are over and counts the others, in the next part
// of the tables. It reports whether that was the last one.
func (w *sweeper) sweepSessions() (last bool, err error) {
	owners, err := w.catalog.owners(context.Background())
	if err != nil {
		return false, err
	}
	pass := &w.sessions
	if pass.part.Index == 0 {
		pass.part.Of, pass.counts = w.tables.Sessions.Parts(), map[*service]int{}
	}
	for _, o := range owners {
		if o.now.translates() {
			pass.counts[o.s] += 0
		}
	}
	if len(pass.counts) == 0 && !w.sessionsLeft {
		return true, nil
	}
	if err := w.sweepPart(owners); err != nil {
		return false, err
	}
	if pass.part.Index++; pass.part.Index < pass.part.Of {
		return false, nil
	}
	pass.part.Index = 0
	w.sessionsLeft = len(pass.counts) > 0
	w.catalog.mu.Lock()
	defer w.catalog.mu.Unlock()
	for _, s := range w.catalog.services { // also those that translate no more
		s.sessions = pass.counts[s]
	}
	return true, nil
}

// sweepPart sweeps the present part of the tables. Services may have changed since they
// were read, so they are read again before sessions are deleted.
func (w *sweeper) sweepPart(owners map[uint32]*owner) error {
	now, err := table.FlowClock()
	if err != nil {
		return err
	}
	over := false
	for _, sessions := range table.SessionTables(w.tables) {
		sessions.EachIn(w.sessions.part, func(s *table.BalancerNatSession) {
			if o := owners[uint32(s.Service)]; !o.keepsSession(s, now) {
				over = true
			} else if !table.IsReply(s) {
				w.sessions.counts[o.s]++
			}
		})
	}
	if !over {
		return nil
	}
	if owners, err = w.catalog.owners(context.Background()); err != nil {
		return err
	}
	for _, sessions := range table.SessionTables(w.tables) {
		sessions.DeleteIn(w.sessions.part, func(s *table.BalancerNatSession) bool { return !owners[uint32(s.Service)].keepsSession(s, now) })
	}
	return nil
}

// flowCounts sums up a service's flow records.
type flowCounts struct {
	present   int    // when they were last counted
	inserts   uint64 // at that time
	forgotten uint64 // deleted by this and earlier agents
	// unrecorded is the number of flows without a record at the last sweep, flooded
	// whether there were some since the one before.
	unrecorded uint64
	flooded    bool
}

// evicted counts the records that made room for others. Inserts are read before
// records are counted, so it never is too large.
func (c flowCounts) evicted() uint64 {
	known := c.forgotten + uint64(c.present)
	return max(c.inserts, known) - known
}
