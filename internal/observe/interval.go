// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// samplePeriod is the time between two readings of the counters.
const samplePeriod = time.Second

// interval is the time between two readings. The rate of a counter that is missing in one
// of them, or was reset between them, is 0.
type interval struct {
	from, to     dataplane.Stats
	began, ended time.Time
}

func (s interval) perSecond(from, to uint64) float64 {
	elapsed := s.ended.Sub(s.began)
	if s.began.IsZero() || elapsed <= 0 || to < from {
		return 0
	}
	return float64(to-from) / elapsed.Seconds()
}

func (s interval) exit(name string) float64 {
	from, known := s.from.Exits[name]
	if !known {
		return 0
	}
	return s.perSecond(from, s.to.Exits[name])
}

func (s interval) service(vip lb.VIP) Rate {
	from, known := s.from.Services[vip]
	if !known {
		return Rate{}
	}
	return s.rate(from.Traffic, s.to.Services[vip].Traffic)
}

func (s interval) backend(vip lb.VIP, id lb.BackendID) Rate {
	from, known := s.from.Services[vip].Backend(id)
	if !known {
		return Rate{}
	}
	to, _ := s.to.Services[vip].Backend(id)
	return s.rate(from, to)
}

func (s interval) rate(from, to dataplane.Traffic) Rate {
	return Rate{
		PacketsPerSecond:  s.perSecond(from.Packets, to.Packets),
		BytesPerSecond:    s.perSecond(from.Bytes, to.Bytes),
		NewFlowsPerSecond: s.perSecond(from.NewFlows, to.NewFlows),
	}
}
