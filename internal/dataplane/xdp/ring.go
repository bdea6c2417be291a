// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
)

// startTime is how long a service starts. In that time the first checks of its backends succeed and
// their neighbours answer, one after another.
const startTime = 3 * time.Second

// hasNoPast reports whether the next ring of a service has no past: the service starts, and no
// packet was balanced by its rings so far. Other balancers didn't have these rings, and their flows,
// if they come here, would be taken for older than the change. Later a ring has a past also without
// packets, as the other balancers have the same.
func (s *service) hasNoPast(t *table.Tables, now time.Duration) (bool, error) {
	if now >= s.started {
		return false, nil
	}
	counters := t.CounterReader()
	packets := s.gone.Packets
	for i := range s.now.slots {
		if one := &s.now.slots[i]; one.taken() {
			counted, err := counters.Read(s.Counters.Base + uint32(i))
			if err != nil {
				return false, err
			}
			packets += counted.Sub(one.Before()).Packets
		}
	}
	return packets == 0, nil
}
