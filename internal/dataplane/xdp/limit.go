// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"time"
	"unsafe"

	"fairlead.io/fairlead/internal/lb"
)

// limitWindow is one second in the program's unit: how much of a limit may be
// used at once (bpf/limit.h).
const limitWindow = uint64(time.Second) << balancerLimitTimeLIMIT_TIME_SHIFT

// limits are those of a service as the program has them: the time between two
// new flows; 0 is no limit.
type limits struct {
	service, source uint64
}

func limitsOf(l lb.FlowLimits) limits {
	return limits{limitInterval(l.NewFlows), limitInterval(l.NewFlowsPerSource)}
}

// limitInterval is the time between two of n flows in a second. It is rounded
// down, so that n flows fit into the window.
func limitInterval(n int) uint64 {
	if n == 0 {
		return 0
	}
	return limitWindow / uint64(n)
}

// writeLimits stores a service's limits. Packets may be using them: each is one
// store, and what has been used of them stays.
func (t *tables) writeLimits(number uint32, l limits) error {
	at := serviceOffset(number) + unsafe.Offsetof(balancerService{}.Limit)
	if err := write(t.services, at+unsafe.Offsetof(balancerLimit{}.Interval), l.service); err != nil {
		return err
	}
	return write(t.services, at+unsafe.Offsetof(balancerLimit{}.SourceInterval), l.source)
}
