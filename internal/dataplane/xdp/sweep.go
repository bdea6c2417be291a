// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
)

// sweepInterval is how often services are checked for flow records that are due to
// be read.
const sweepInterval = time.Second

// maxSweepPause bounds how old the count of a service's flows can be.
const maxSweepPause = 30 * time.Second

// idleSlack is added to idle time-outs: how late a record's time may be
// (FLOW_TOUCH of bpf/pick/flow.h and a tick of the coarse clock), and how long a
// change takes from its time until packets see it.
const idleSlack = 250 * time.Millisecond

// forgetAtOnce is how many records are deleted while changes wait, about a
// millisecond's worth.
const forgetAtOnce = 256

// sweeper removes records that packets left in the tables and no service needs any
// more.
type sweeper struct {
	catalog    *catalog
	tables     *table.Tables
	log        *slog.Logger
	unrecorded func(lb.VIP) // Config.Unrecorded
	// sessionsLeft is set if there may be NAT sessions without a service; only
	// sweepSessions uses it. clientsLeft is set if there may be records of clients.
	sessionsLeft bool
	clientsLeft  atomic.Bool
	sessions     sessionPass
}

func newSweeper(c *catalog, cfg Config) *sweeper {
	w := &sweeper{catalog: c, tables: c.tables, log: cfg.Log, unrecorded: cfg.Unrecorded, sessionsLeft: true}
	w.clientsLeft.Store(true)
	return w
}

// swept is a service while its flow records are read.
type swept struct {
	owner
	// disagree and used come from live records: entries that must stay unstable,
	// and slots that must stay taken.
	disagree []bool
	used     []bool
	present  int
	stats    table.BalancerFlowStats
	// flooded is set if there have been too many new flows to record.
	flooded bool
	// readAt is when reading began, in the time that records have.
	readAt uint32
	// keys are the records of unstable entries by the entry, for those that
	// become stable; stray those that are not needed.
	keys  map[int][]uint64
	stray []uint64
}

func newSwept(vip lb.VIP, s *service) *swept {
	return &swept{
		owner:    owner{vip: vip, s: s, now: s.now, idle: s.idle},
		disagree: make([]bool, len(s.now.ring.Entries)),
		used:     make([]bool, len(s.now.slots)),
		keys:     map[int][]uint64{},
	}
}

// warn logs an error, unless the plane is closed meanwhile.
func (w *sweeper) warn(what string, err error) {
	if err != nil && !errors.Is(err, table.ErrClosed) {
		w.log.Warn("sweep failed, retrying", "what", what, "error", err)
	}
}

// sweep reads the flow records if that is due for a service: records that are
// idle or not needed are deleted, entries become stable again and the slots of
// backends that left become free.
func (w *sweeper) sweep(now time.Duration) error {
	services, err := w.sweepable(now)
	if err != nil || len(services) == 0 {
		return err
	}
	orphans, err := w.readFlows(services)
	if err != nil {
		return err
	}
	for _, sw := range services {
		if sw.flooded && w.unrecorded != nil {
			w.unrecorded(sw.vip)
		}
		if err := w.settle(sw, now); err != nil {
			return err
		}
	}
	for number, keys := range orphans {
		over := func(flow *table.BalancerFlow) bool { return flow.Service == number }
		if _, err := w.forget(keys, func() bool { return w.catalog.serves(number) }, over); err != nil {
			return err
		}
	}
	return nil
}

// countUnrecorded takes the count of flows without a record and reports whether there are
// some since the last sweep, and were none before.
func (c *flowCounts) countUnrecorded(count uint64) (flooded bool) {
	more := count > c.unrecorded
	flooded = more && !c.flooded
	c.unrecorded, c.flooded = count, more
	return flooded
}

// forget deletes the records that are over, as long as they aren't needed: a service may change
// at any time, and a packet may begin a new flow with the record of an idle one.
func (w *sweeper) forget(keys []uint64, needed func() bool, over func(*table.BalancerFlow) bool) (deleted int, err error) {
	for portion := range slices.Chunk(keys, forgetAtOnce) {
		n, err := w.forgetPortion(portion, needed, over)
		if deleted += n; err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

func (w *sweeper) forgetPortion(keys []uint64, needed func() bool, over func(*table.BalancerFlow) bool) (deleted int, err error) {
	w.catalog.mu.Lock()
	defer w.catalog.mu.Unlock()
	if w.catalog.closed || needed() {
		return 0, nil
	}
	if keys, err = table.SelectFlows(w.tables, keys, over); err != nil {
		return 0, err
	}
	return table.DeleteFlows(w.tables, keys)
}

// sweepable returns the services with flow records, by number; none if no
// service is due.
func (w *sweeper) sweepable(now time.Duration) (map[uint32]*swept, error) {
	w.catalog.mu.Lock()
	defer w.catalog.mu.Unlock()
	if w.catalog.closed {
		return nil, nil
	}
	due := false
	services := make(map[uint32]*swept)
	for vip, s := range w.catalog.services {
		if s.idle == 0 || !s.tracks() {
			continue
		}
		due = due || now >= s.sweepAt
		services[s.Number.Base] = newSwept(vip, s)
	}
	if !due {
		return nil, nil
	}
	stats, err := w.tables.ReadFlowStats()
	for number, sw := range services {
		if err == nil {
			sw.stats = stats[number]
			sw.flooded = sw.s.flows.countUnrecorded(sw.stats.Unrecorded)
		}
	}
	return services, err
}

// tracks reports whether flows of the service may be recorded, or slots wait to
// become free.
func (s *service) tracks() bool {
	return s.now.has(table.BalancerViewFlagVIEW_TRACK_ALL) || s.now.ring.Previous != nil ||
		s.flows.present > 0 || s.left > 0
}

// countLeft counts the slots of backends that are none of the service's.
func (s *service) countLeft() {
	s.left = 0
	for i := range s.now.slots {
		if s.now.slots[i].left {
			s.left++
		}
	}
}

// readFlows sorts the flow records by their services and returns the others by
// their services' numbers.
func (w *sweeper) readFlows(services map[uint32]*swept) (orphans map[uint32][]uint64, err error) {
	now, err := table.FlowClock()
	if err != nil {
		return nil, err
	}
	for _, sw := range services {
		sw.readAt = now
	}
	orphans = map[uint32][]uint64{}
	err = w.tables.EachFlow(func(key uint64, flow *table.BalancerFlow) {
		if sw := services[flow.Service]; sw != nil {
			sw.add(key, flow)
		} else {
			orphans[flow.Service] = append(orphans[flow.Service], key)
		}
	})
	if err != nil || !translate(services) {
		return orphans, err
	}
	w.tables.EachSession(func(_ uint64, s *table.BalancerNatSession) {
		if sw := services[uint32(s.Service)]; sw != nil {
			if sw.keepsSession(s, now) {
				sw.used[s.Backend&0xffff] = true // the backend keeps its slot
			}
		}
	})
	return orphans, nil
}

// translate reports whether a swept service may have NAT sessions.
func translate(services map[uint32]*swept) bool {
	for _, sw := range services {
		if sw.now.translates() {
			return true
		}
	}
	return false
}

// stable reports whether the ring's entry of a flow is stable.
func (v *version) stable(flow *table.BalancerFlow) bool {
	return len(v.ring.Entries) == 0 || v.ring.Entries[v.ring.Place(flow.Place)]&tracking.Unstable == 0
}

// needs reports whether a version of the service needs a record.
func (sw *swept) needs(v *version, flow *table.BalancerFlow) bool {
	return named(v.slots, flow.Backend) != nil && table.FlowAge(sw.readAt, flow.Seen) <= idleTime(flow, sw.idle) &&
		(v.has(table.BalancerViewFlagVIEW_TRACK_ALL) || !v.stable(flow))
}

// add counts one record.
func (sw *swept) add(key uint64, flow *table.BalancerFlow) {
	sw.present++
	if !sw.needs(sw.now, flow) {
		sw.stray = append(sw.stray, key)
		return
	}
	number := flow.Backend & 0xffff
	place, stable := sw.now.ring.Place(flow.Place), sw.now.stable(flow)
	name := func(number uint32) {
		sw.used[number] = true
		// Flows of remembered clients need no past of the ring, and may never agree with it.
		if !stable && uint16(number) != tracking.Slot(sw.now.ring.Entries[place]) && !sw.now.remembers() {
			sw.disagree[place] = true
		}
	}
	name(number)
	if flow.Open == uint8(table.BalancerFlowOpenFLOW_REOPENED) && named(sw.now.slots, flow.Opening) != nil {
		name(flow.Opening & 0xffff)
	}
	if stable {
		return
	}
	if !sw.now.has(table.BalancerViewFlagVIEW_TRACK_ALL) {
		sw.keys[place] = append(sw.keys[place], key)
	}
}

// settle makes entries of a swept service stable and slots free, and deletes
// the records that are not needed any more once no packet looks for them.
func (w *sweeper) settle(sw *swept, now time.Duration) error {
	shown, unneeded, until, err := w.settleVersion(sw, now)
	if err != nil {
		return err
	}
	if len(unneeded) > len(sw.stray) {
		if err := w.tables.Grace.Wait(context.Background(), until); err != nil {
			return err
		}
	}
	deleted, err := w.forget(unneeded, func() bool { return sw.s.now.ring != shown.ring },
		func(flow *table.BalancerFlow) bool { return !sw.needs(shown, flow) })
	w.catalog.mu.Lock()
	defer w.catalog.mu.Unlock()
	sw.s.flows.forgotten += uint64(deleted)
	sw.s.flows.present = sw.present - deleted
	sw.s.flows.inserts = sw.stats.Inserts
	if w.catalog.closed || w.catalog.services[sw.vip] != sw.s {
		return err
	}
	if werr := table.WriteServiceDetail(w.tables, sw.s.Number.Base, unsafe.Offsetof(table.BalancerServiceDetail{}.Forgotten), sw.s.flows.forgotten); err == nil {
		err = werr
	}
	return err
}

// settleVersion shows the version that follows from the records and returns it
// with the records that it doesn't need; packets look for records of newly stable
// entries until the ticket is over. A service that has changed since its records
// were read, or whose view is not free, waits for the next sweep.
func (w *sweeper) settleVersion(sw *swept, now time.Duration) (shown *version, unneeded []uint64, until table.Ticket, err error) {
	w.catalog.mu.Lock()
	defer w.catalog.mu.Unlock()
	s := sw.s
	if w.catalog.closed || w.catalog.services[sw.vip] != s {
		return nil, nil, 0, nil
	}
	s.sweepAt = now + min(max(sw.idle/4, sweepInterval), maxSweepPause)
	if s.now != sw.now || !w.tables.Grace.Over(s.Flipped) {
		s.sweepAt = now
		return nil, nil, 0, nil
	}
	next := sw.settled(now)
	err = w.catalog.show(sw.vip, s, next, next.writes(sw.vip, s.now, w.tables.Generation()))
	if errors.As(err, new(table.BusyError)) || errors.As(err, new(table.FullError)) {
		return nil, nil, 0, nil // no room now: there is another sweep
	}
	if err != nil {
		return nil, nil, 0, err
	}
	s.countLeft()
	return next, sw.unneeded(next), s.Flipped, nil
}

// unneeded are the records that a version doesn't need.
func (sw *swept) unneeded(v *version) []uint64 {
	unneeded := sw.stray
	for place, keys := range sw.keys {
		if len(v.ring.Entries) == 0 || v.ring.Entries[place]&tracking.Unstable == 0 {
			unneeded = append(unneeded, keys...)
		}
	}
	return unneeded
}

// settled returns the version that follows from the records.
func (sw *swept) settled(now time.Duration) *version {
	next := sw.now.clone()
	if next.learned == 0 { // or the flows being learned would be forgotten
		next.ring = next.ring.Settle(sw.disagree, sw.idle, now)
	}
	next.free(sw.used)
	servers := maps.Clone(next.options.Servers)
	maps.DeleteFunc(servers, func(_ lb.ServerID, record uint32) bool { return named(next.slots, record) == nil })
	next.options.Servers = servers
	peerLookup{}.option(&next.options, next.slots, nil)
	return next
}

// free empties the slots of backends that have left and that neither the ring
// nor a record names.
func (v *version) free(used []bool) {
	named := make([]bool, len(v.slots))
	v.ring.Uses(func(n uint16) {
		if int(n) < len(named) {
			named[n] = true
		}
	})
	for i := range v.slots {
		if one := &v.slots[i]; one.left && !named[i] && !used[i] {
			v.slots[i] = slot{}
		}
	}
}

// retireTraffic adds the counts of backends that left to the totals of their services, which
// the next agent reads from the tables.
func (w *sweeper) retireTraffic() error {
	w.catalog.mu.Lock()
	defer w.catalog.mu.Unlock()
	quiet := w.tables.Grace.Newest()
	if w.catalog.closed || !hasLeavers(w.catalog.services, quiet) {
		return nil
	}
	traffic, err := w.tables.ReadTraffic()
	if err != nil {
		return err
	}
	return retireTraffic(w.tables, w.catalog.services, quiet, traffic)
}
