// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"slices"
	"time"
	"unsafe"

	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
)

// sweepInterval is how often there is a look at whether flow records are due to
// be read.
const sweepInterval = time.Second

// maxSweepPause bounds how old the count of a service's flows can be.
const maxSweepPause = 30 * time.Second

// idleSlack is added to idle time-outs: how late a record's time may be
// (FLOW_TOUCH of bpf/flow.h and a tick of the coarse clock), and how long a
// change takes from its time until packets see it.
const idleSlack = 250 * time.Millisecond

// forgetAtOnce is how many records are deleted while changes wait, about a
// millisecond's worth.
const forgetAtOnce = 512

// swept is a service while its flow records are read.
type swept struct {
	vip  lb.VIP
	s    *service
	now  *version // when reading began
	idle time.Duration
	// natIdle is that of established NAT sessions.
	natIdle time.Duration
	// disagree and used are what live records say: entries that must stay
	// unstable, and slots that must stay taken.
	disagree []bool
	used     []bool
	present  int
	inserts  uint64
	// keys are the records of unstable entries by the entry, for those that
	// become stable; stray those that nobody needs.
	keys  map[int][]uint64
	stray []uint64
}

// sweepEvery sweeps until the plane is closed.
func (p *Plane) sweepEvery(interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	sessions := time.NewTicker(sessionSweepInterval)
	defer sessions.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-sessions.C:
			if err := p.sweepSessions(); err != nil {
				p.config.Log.Warn("sessions were not swept", "error", err)
			}
			if err := p.sweepClients(); err != nil {
				p.config.Log.Warn("clients were not swept", "error", err)
			}
			continue
		case <-tick.C:
		}
		if err := p.sweep(p.clock()); err != nil {
			p.config.Log.Warn("flow records were not swept", "error", err)
		}
		if err := p.trim(); err != nil {
			p.config.Log.Warn("program keeps features that nothing needs", "error", err)
		}
	}
}

// sweep reads the flow records if that is due for a service: records that are
// idle or that nobody needs are deleted, entries become stable again and the
// slots of backends that left become free (DESIGN.md §5.2).
func (p *Plane) sweep(now time.Duration) error {
	services, err := p.sweepable(now)
	if err != nil || len(services) == 0 {
		return err
	}
	orphans, err := p.readFlows(services)
	if err != nil {
		return err
	}
	for _, sw := range services {
		if err := p.settle(sw, now); err != nil {
			return err
		}
	}
	for number, keys := range orphans {
		if _, err := p.forget(keys, func() bool { return p.serves(number) }); err != nil {
			return err
		}
	}
	return nil
}

// forget deletes records, as long as they aren't needed: a service may change at
// any time.
func (p *Plane) forget(keys []uint64, needed func() bool) (deleted int, err error) {
	for portion := range slices.Chunk(keys, forgetAtOnce) {
		n, err := p.forgetPortion(portion, needed)
		if deleted += n; err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

func (p *Plane) forgetPortion(keys []uint64, needed func() bool) (deleted int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || needed() {
		return 0, nil
	}
	return p.kernel.deleteFlows(keys)
}

// serves reports whether there is a service of that number.
func (p *Plane) serves(number uint32) bool {
	for _, s := range p.services {
		if s.number.base == number {
			return true
		}
	}
	return false
}

// sweepable returns the services with flow records, by number; none if no
// service is due.
func (p *Plane) sweepable(now time.Duration) (map[uint32]*swept, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil
	}
	due := false
	services := make(map[uint32]*swept)
	for vip, s := range p.services {
		if s.idle == 0 || !s.tracks() {
			continue
		}
		due = due || now >= s.sweepAt
		services[s.number.base] = &swept{
			vip: vip, s: s, now: s.now, idle: s.idle, natIdle: s.natIdle(),
			disagree: make([]bool, len(s.now.ring.Entries)),
			used:     make([]bool, len(s.now.slots)),
			keys:     map[int][]uint64{},
		}
	}
	if !due {
		return nil, nil
	}
	stats, err := p.kernel.readFlowStats(p.numbersUsed())
	for number, sw := range services {
		if err == nil {
			sw.inserts = stats[number].Inserts
		}
	}
	return services, err
}

// tracks reports whether flows of the service may be recorded, or slots wait to
// become free.
func (s *service) tracks() bool {
	return s.now.flags&uint16(balancerViewFlagVIEW_TRACK_ALL) != 0 || s.now.ring.Previous != nil ||
		s.flows.present > 0 || s.left > 0
}

// countLeft counts the slots of backends that are none of the service's.
func (s *service) countLeft() {
	s.left = 0
	for i := range s.now.slots {
		if one := &s.now.slots[i]; one.taken() && !s.wanted(one) {
			s.left++
		}
	}
}

// wanted reports whether the backend of a slot is one of the service's.
func (s *service) wanted(one *slot) bool {
	_, ok := s.backends[one.id()]
	return ok || s.backends == nil
}

// readFlows sorts the flow records by their services and returns the others by
// their services' numbers.
func (p *Plane) readFlows(services map[uint32]*swept) (orphans map[uint32][]uint64, err error) {
	now, err := flowClock()
	if err != nil {
		return nil, err
	}
	orphans = map[uint32][]uint64{}
	err = p.kernel.eachFlow(func(key uint64, flow *balancerFlow) {
		if sw := services[flow.Service]; sw != nil {
			sw.add(key, flow, now)
		} else {
			orphans[flow.Service] = append(orphans[flow.Service], key)
		}
	})
	if err != nil || !translate(services) {
		return orphans, err
	}
	return orphans, p.kernel.eachSession(func(_ uint64, s *balancerNatSession) {
		if sw := services[s.Service]; sw != nil {
			sw.hold(s, flowAge(now, s.Seen))
		}
	})
}

// translate reports whether a swept service may have NAT sessions.
func translate(services map[uint32]*swept) bool {
	for _, sw := range services {
		if sw.now.flags&uint16(balancerViewFlagVIEW_NAT) != 0 {
			return true
		}
	}
	return false
}

// hold takes note of one NAT session: its backend keeps its slot.
func (sw *swept) hold(s *balancerNatSession, age time.Duration) {
	owner := sessionOwner{idle: sw.natIdle, slots: sw.now.slots}
	if owner.keeps(s, age) {
		sw.used[s.Backend&0xffff] = true
	}
}

// add takes note of one record.
func (sw *swept) add(key uint64, flow *balancerFlow, now uint32) {
	sw.present++
	number := flow.Backend & 0xffff
	known := int(number) < len(sw.now.slots) && sw.now.slots[number].record(uint16(number)) == flow.Backend
	all := sw.now.flags&uint16(balancerViewFlagVIEW_TRACK_ALL) != 0
	place := sw.now.ring.Place(flow.Place)
	stable := len(sw.now.ring.Entries) == 0 || sw.now.ring.Entries[place]&tracking.Unstable == 0
	if !known || flowAge(now, flow.Seen) > idleTime(flow, sw.idle) || (stable && !all) {
		sw.stray = append(sw.stray, key)
		return
	}
	sw.used[number] = true
	if stable {
		return
	}
	// Flows of remembered clients need no past of the ring, and may never agree with it.
	if uint16(number) != tracking.Slot(sw.now.ring.Entries[place]) && !sw.now.remembers() {
		sw.disagree[place] = true
	}
	if !all {
		sw.keys[place] = append(sw.keys[place], key)
	}
}

// settle makes entries of a swept service stable and slots free, and deletes
// the records that are not needed any more once no packet looks for them.
func (p *Plane) settle(sw *swept, now time.Duration) error {
	shown, unneeded, until, err := p.settleVersion(sw, now)
	if err != nil {
		return err
	}
	if len(unneeded) > len(sw.stray) {
		if err := p.grace.wait(context.Background(), until); err != nil {
			return err
		}
	}
	deleted, err := p.forget(unneeded, func() bool { return sw.s.now.ring != shown.ring })
	p.mu.Lock()
	defer p.mu.Unlock()
	sw.s.flows.forgotten += uint64(deleted)
	sw.s.flows.present = sw.present - deleted
	sw.s.flows.inserts = sw.inserts
	if p.closed || p.services[sw.vip] != sw.s {
		return err
	}
	offset := serviceOffset(sw.s.number.base) + unsafe.Offsetof(balancerService{}.Forgotten)
	if werr := write(p.kernel.services, offset, sw.s.flows.forgotten); err == nil {
		err = werr
	}
	return err
}

// settleVersion shows the version that follows from the records and returns it
// with the records that it doesn't need; packets look for those of entries that
// have become stable until the ticket is over. A service that has changed since
// its records were read, or whose view is not free, waits for the next sweep.
func (p *Plane) settleVersion(sw *swept, now time.Duration) (shown *version, unneeded []uint64, until ticket, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := sw.s
	if p.closed || p.services[sw.vip] != s {
		return nil, nil, 0, nil
	}
	s.sweepAt = now + min(max(sw.idle/4, sweepInterval), maxSweepPause)
	if s.now != sw.now || !p.grace.over(s.flipped) {
		s.sweepAt = now
		return nil, nil, 0, nil
	}
	next := s.now.next()
	next.learned = s.now.learned
	if next.learned == 0 { // or what is being learned would be forgotten
		next.ring = s.now.ring.Settle(sw.disagree, sw.idle, now)
	}
	s.free(next, sw.used)
	next.servers = next.heldServers()
	if err := p.stageTables(s, next); err != nil {
		p.unstage(s, next)
		return nil, nil, 0, nil // no room now: there is another sweep
	}
	if err := p.show(sw.vip, s, next, true); err != nil {
		return nil, nil, 0, err
	}
	s.countLeft()
	unneeded = sw.stray
	for place, keys := range sw.keys {
		if len(next.ring.Entries) == 0 || next.ring.Entries[place]&tracking.Unstable == 0 {
			unneeded = append(unneeded, keys...)
		}
	}
	return next, unneeded, s.flipped, nil
}

// free empties the slots of backends that have left and that neither the ring
// nor a record names.
func (s *service) free(v *version, used []bool) {
	named := make([]bool, len(v.slots))
	v.ring.Uses(func(n uint16) {
		if int(n) < len(named) {
			named[n] = true
		}
	})
	for i := range v.slots {
		if one := &v.slots[i]; one.taken() && !s.wanted(one) && !named[i] && !used[i] {
			v.slots[i] = slot{}
		}
	}
}
