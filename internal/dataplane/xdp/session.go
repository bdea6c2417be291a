// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// How long NAT sessions may be silent (enum nat_seconds of bpf/types.h).
const (
	sessionOpening = time.Duration(balancerNatSecondsNAT_OPENING_SECONDS) * time.Second
	sessionClosing = time.Duration(balancerNatSecondsNAT_CLOSING_SECONDS) * time.Second
	sessionOneWay  = time.Duration(balancerNatSecondsNAT_ONE_WAY_SECONDS) * time.Second
	// sessionTouch is how late a session's time may be.
	sessionTouch = time.Second + idleSlack
)

// sessionSweepInterval is how often sessions that are over are looked for. A
// session that is over counts for nothing anyway; deleting it makes room.
const sessionSweepInterval = 5 * time.Second

// eachSession calls yield with every entry of a NAT session, of which there are
// two.
func (t *tables) eachSession(yield func(key uint64, s *balancerNatSession)) error {
	return eachRecord(t.maps.NatSessions, yield)
}

// isReply reports whether the entry is that for packets of the server.
func isReply(s *balancerNatSession) bool {
	return s.Flags&uint8(balancerNatFlagNAT_REPLY) != 0
}

// sessionIdle is how long a session may be silent, whose service gives idle to
// established ones.
func sessionIdle(s *balancerNatSession, idle time.Duration) time.Duration {
	switch balancerNatState(s.State) {
	case balancerNatStateNAT_OPENING, balancerNatStateNAT_ANSWERED:
		return sessionOpening
	case balancerNatStateNAT_CLOSING:
		return sessionClosing
	case balancerNatStateNAT_ONE_WAY:
		return min(idle, sessionOneWay)
	default:
		return idle
	}
}

// asFlow shows a session as a record of its flow.
func asFlow(s *balancerNatSession) balancerFlow {
	f := balancerFlow{Service: s.Service, Backend: s.Backend, Seen: s.Seen, Client: s.Client, Port: s.ClientPort}
	if balancerNatState(s.State) == balancerNatStateNAT_CLOSING {
		f.Closing = 1
	}
	return f
}

// eachRemembered calls yield with every flow record, and with every NAT session as
// one.
func (t *tables) eachRemembered(yield func(flow *balancerFlow)) error {
	err := t.eachFlow(func(_ uint64, flow *balancerFlow) { yield(flow) })
	if err != nil {
		return err
	}
	return t.eachSession(func(_ uint64, s *balancerNatSession) {
		if !isReply(s) {
			flow := asFlow(s)
			yield(&flow)
		}
	})
}

// sessionOwner is a service with NAT, while its sessions are read.
type sessionOwner struct {
	s     *service
	idle  time.Duration
	slots []slot
	count int
}

// keeps reports whether a session, of that age, is alive; it isn't without a
// service.
func (o *sessionOwner) keeps(s *balancerNatSession, age time.Duration) bool {
	return o != nil && age <= sessionIdle(s, o.idle)+sessionTouch && namesSlot(o.slots, s.Backend)
}

// namesSlot reports whether a record names the backend that a slot has.
func namesSlot(slots []slot, record uint32) bool {
	number := record & 0xffff
	return int(number) < len(slots) && slots[number].taken() && slots[number].record(uint16(number)) == record
}

// sessionOwners are the services with NAT by their numbers.
func (p *Plane) sessionOwners() map[uint32]*sessionOwner {
	p.mu.Lock()
	defer p.mu.Unlock()
	owners := make(map[uint32]*sessionOwner)
	if p.closed {
		return owners
	}
	for _, s := range p.services {
		if s.translates() {
			owners[s.number.base] = &sessionOwner{s: s, idle: s.natIdle(), slots: s.now.slots}
		}
	}
	return owners
}

// translates reports whether packets of the service are translated.
func (s *service) translates() bool {
	return s.now.flags&uint16(balancerViewFlagVIEW_NAT) != 0
}

// natIdle is how long an established session of the service may be silent.
func (s *service) natIdle() time.Duration { return time.Duration(s.now.natIdle) << flowTimeShift }

// sweepSessions deletes the sessions that are over and counts the others.
func (p *Plane) sweepSessions() error {
	owners := p.sessionOwners()
	if len(owners) == 0 && !p.sessionsLeft {
		return nil
	}
	now, err := flowClock()
	if err != nil {
		return err
	}
	over := map[uint64]uint32{} // by key: when it was last seen
	err = p.kernel.eachSession(func(key uint64, s *balancerNatSession) {
		if owner := owners[s.Service]; !owner.keeps(s, flowAge(now, s.Seen)) {
			over[key] = s.Seen
		} else if !isReply(s) {
			owner.count++
		}
	})
	if err == nil {
		err = p.endSessions(over, now)
	}
	p.sessionsLeft = len(owners) > 0 || err != nil
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range owners {
		o.s.sessions = o.count
	}
	return err
}

// endSessions deletes entries that are over, if no packet has come for them since
// they were read. Services may have changed meanwhile, so they are asked again.
func (p *Plane) endSessions(over map[uint64]uint32, now uint32) error {
	owners := p.sessionOwners()
	table := p.kernel.maps.NatSessions
	for key, seen := range over {
		var s balancerNatSession
		err := table.Lookup(key, &s)
		if errors.Is(err, ebpf.ErrKeyNotExist) || s.Seen != seen || owners[s.Service].keeps(&s, flowAge(now, s.Seen)) {
			continue
		}
		if err == nil {
			_, err = deleteRecords(table, []uint64{key})
		}
		if err != nil {
			return fmt.Errorf("nat sessions: %w", err)
		}
	}
	return nil
}
