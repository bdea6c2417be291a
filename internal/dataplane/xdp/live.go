// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

const (
	// closedSilence is how long a client that has closed has to be silent until
	// its flow counts as ended: some round trips, in which what it closes with, and
	// what its server still has to send, is acknowledged.
	closedSilence = 3 * time.Second
	// closingTimeout is how long a flow that its client has closed may be silent
	// and still need its record: a server may go on for a while without sending. It
	// is what Linux's connection tracking gives a connection after a FIN.
	closingTimeout = 2 * time.Minute
)

// idleTime is how long a flow may be silent before its record is forgotten, in a
// service with that idle time-out.
func idleTime(flow *balancerFlow, idle time.Duration) time.Duration {
	if flow.Closing != 0 {
		return min(idle, closingTimeout)
	}
	return idle
}

// live reports whether a flow of that age has not ended.
func live(flow *balancerFlow, age, idle time.Duration) bool {
	return age <= idle && (flow.Closing == 0 || age <= closedSilence)
}

// flowOwner is whom the records of one service number belong to.
type flowOwner struct {
	vip      lb.VIP
	idle     time.Duration
	natIdle  time.Duration
	backends map[uint32]lb.BackendID // by what records say
}

// CountFlows counts the live recorded flows of all backends. The table is read
// without holding the plane.
func (p *Plane) CountFlows(ctx context.Context) (dataplane.FlowCounts, error) {
	owners, err := p.flowOwners(ctx)
	if err != nil {
		return nil, err
	}
	now, err := flowClock()
	if err != nil {
		return nil, err
	}
	counts := dataplane.FlowCounts{}
	count := func(flow *balancerFlow, idle time.Duration) {
		owner := owners[flow.Service]
		backend, known := owner.backends[flow.Backend]
		if !known || !live(flow, flowAge(now, flow.Seen), idle) {
			return
		}
		if counts[owner.vip] == nil {
			counts[owner.vip] = map[lb.BackendID]int{}
		}
		counts[owner.vip][backend]++
	}
	err = p.kernel.eachFlow(func(_ uint64, flow *balancerFlow) { count(flow, owners[flow.Service].idle) })
	if err != nil {
		return nil, err
	}
	err = p.kernel.eachSession(func(_ uint64, s *balancerNatSession) {
		if flow := asFlow(s); !isReply(s) {
			count(&flow, sessionIdle(s, owners[s.Service].natIdle)+sessionTouch)
		}
	})
	return counts, err
}

// flowOwners are the services by number. Flows of a backend that can't be used
// are others' from their next packet on, so it has none.
func (p *Plane) flowOwners(ctx context.Context) (map[uint32]flowOwner, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	owners := make(map[uint32]flowOwner, len(p.services))
	for vip, s := range p.services {
		owner := flowOwner{vip: vip, idle: s.idle, natIdle: s.natIdle(), backends: make(map[uint32]lb.BackendID, len(s.now.slots))}
		for n := range s.now.slots {
			if one := &s.now.slots[n]; one.taken() && one.usable() {
				owner.backends[one.record(uint16(n))] = one.id()
			}
		}
		owners[s.number.base] = owner
	}
	return owners, nil
}
