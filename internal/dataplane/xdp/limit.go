// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// limitWindow is one second in the program's unit: how much of a limit may be
// used at once (bpf/pick/admit.h).
const limitWindow = uint64(time.Second) << table.BalancerLimitTimeLIMIT_TIME_SHIFT

// limits are a service's limits as the program has them: the time between two new
// flows; 0 is unlimited.
type limits struct {
	service, source uint64
}

func (l *limits) describe(svc *lb.Service) {
	l.service, l.source = limitInterval(svc.Limits.NewFlows), limitInterval(svc.Limits.NewFlowsPerSource)
}

// limitInterval is the time between two of n flows in a second. It is rounded
// down, so that n flows fit into the window.
func limitInterval(n int) uint64 {
	if n == 0 {
		return 0
	}
	return limitWindow / uint64(n)
}

func (l *limits) needs() program.Features { return when(*l != (limits{}), program.FeatureLimits) }

func (l *limits) flags() table.BalancerViewFlag {
	return when(*l != (limits{}), table.BalancerViewFlagVIEW_LIMITS)
}

func (l *limits) option(o *table.Options, _ []slot, _ *table.Options) {
	o.Interval, o.SourceInterval = l.service, l.source
}
