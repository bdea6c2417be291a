// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

const (
	// closedSilence is how long a client that has closed has to be silent until
	// its flow counts as ended: some round trips, in which its FIN and its server's
	// last data are acknowledged.
	closedSilence = 3 * time.Second
	// closingTimeout is how long a flow that its client has closed may be silent
	// and still need its record: a server may pause for a while. Linux's connection tracking has
	// the same timeout after a FIN.
	closingTimeout = 2 * time.Minute
)

// idleTime is how long a flow may be silent before its record is forgotten, in a
// service with that idle time-out.
func idleTime(flow *table.BalancerFlow, idle time.Duration) time.Duration {
	if flow.Closing != 0 {
		return min(idle, closingTimeout)
	}
	return idle
}

// live reports whether a flow of that age has not ended.
func live(flow *table.BalancerFlow, age, idle time.Duration) bool {
	return age <= idle && (flow.Closing == 0 || age <= closedSilence)
}

// CountFlows counts the live recorded flows of all backends. The table is read
// without holding the plane. Flows of a backend that can't be used are others' from
// their next packet on, so it has none.
func (p *Plane) CountFlows(ctx context.Context) (dataplane.FlowCounts, error) {
	owners, err := p.owners(ctx)
	if err != nil {
		return nil, err
	}
	now, err := table.FlowClock()
	if err != nil {
		return nil, err
	}
	counts := dataplane.FlowCounts{}
	count := func(o *owner, flow *table.BalancerFlow, idle time.Duration) {
		backend := o.now.recorded(flow.Backend)
		if !backend.IsValid() || !live(flow, table.FlowAge(now, flow.Seen), idle) {
			return
		}
		if counts[o.vip] == nil {
			counts[o.vip] = map[lb.BackendID]int{}
		}
		counts[o.vip][backend]++
	}
	err = p.tables.EachFlow(func(_ uint64, flow *table.BalancerFlow) {
		if o := owners[flow.Service]; o != nil {
			count(o, flow, o.idle)
		}
	})
	if err != nil {
		return nil, err
	}
	p.tables.EachSession(func(_ uint64, s *table.BalancerNatSession) {
		if o := owners[uint32(s.Service)]; o != nil && !table.IsReply(s) {
			flow := table.AsFlow(s)
			count(o, &flow, o.now.sessionIdle(s)+sessionTouch)
		}
	})
	return counts, nil
}
