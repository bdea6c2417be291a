// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"net/netip"

	"fairlead.io/fairlead/internal/observe"
)

// maxBackends is how many backends have metrics of their own, so that a node
// with tens of thousands doesn't answer each scrape with tens of megabytes. The
// services of those that are left out count them all the same.
const maxBackends = 4096

// backends are the first ones by VIP and address.
func backends() collectable {
	return subject[observe.Backend]{
		labels: []string{"service", "vip", "backend"},
		things: func(l *look) []observe.Backend { return l.Backends[:min(len(l.Backends), maxBackends)] },
		values: func(b observe.Backend) []string {
			return []string{b.Service, vip(b.VIP), netip.AddrPortFrom(b.Address, b.Port).String()}
		},
		metrics: []metric[observe.Backend]{
			counter("fairlead_backend_packets_total", "Packets sent to the backend.",
				func(b observe.Backend) float64 { return float64(b.Packets) }),
			counter("fairlead_backend_bytes_total", "Bytes of the frames of these packets, as they were received.",
				func(b observe.Backend) float64 { return float64(b.Bytes) }),
			counter("fairlead_backend_new_flows_total", "Flows that began: each SYN of TCP, each newly recorded flow of UDP.",
				func(b observe.Backend) float64 { return float64(b.NewFlows) }),
			gauge("fairlead_backend_in_use", "1 while the backend gets new flows.",
				func(b observe.Backend) float64 { return truth(b.InUse) }),
			gauge("fairlead_backend_share_ratio", "Part of the service's new flows that the backend gets.",
				func(b observe.Backend) float64 { return b.Share }),
			gauge("fairlead_backend_healthy", "The health check's verdict: 1 if it found the backend alive. Without a check, and before its first verdict, there is none.",
				verdict),
			gauge("fairlead_backend_probe_duration_seconds", "Time of the last probe of the health check.",
				probeTime),
			gauge("fairlead_backend_drained", "1 while an operator keeps new flows from the backend.",
				func(b observe.Backend) float64 { return truth(b.Drained) }),
		},
	}.prepared()
}

func verdict(b observe.Backend) float64 {
	switch b.Health.State {
	case observe.HealthHealthy:
		return 1
	case observe.HealthUnhealthy:
		return 0
	default:
		return none()
	}
}

func probeTime(b observe.Backend) float64 {
	if b.Health.Took == 0 {
		return none()
	}
	return b.Health.Took.Seconds()
}

// leftOut is the number of backends without metrics of their own.
func (l *look) leftOut() int { return max(0, len(l.Backends)-maxBackends) }
