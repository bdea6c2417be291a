// SPDX-License-Identifier: Apache-2.0

package metric

import "fairlead.io/fairlead/internal/observe"

// tracking is what is remembered of the services' flows. Most flows need no
// record: docs/tracking.md.
func tracking() collectable {
	return subject[observe.Service]{
		labels: []string{"service", "vip"},
		things: func(l *look) []observe.Service { return l.Services },
		values: func(s observe.Service) []string { return []string{s.Name, vip(s.VIP)} },
		metrics: []metric[observe.Service]{
			gauge("fairlead_tracking_unstable_entries", "Ring entries whose flows are recorded, as their backend changed not long ago.",
				func(s observe.Service) float64 { return float64(s.Tracking.Unstable) }),
			gauge("fairlead_tracking_flows", "Recorded flows, and sessions of NAT, when they were last counted.",
				func(s observe.Service) float64 { return float64(s.Tracking.Flows) }),
			counter("fairlead_tracking_hits_total", "Packets whose flow was looked for and found.",
				func(s observe.Service) float64 { return float64(s.Tracking.Hits) }),
			counter("fairlead_tracking_misses_total", "Packets whose flow was looked for and not found.",
				func(s observe.Service) float64 { return float64(s.Tracking.Misses) }),
			counter("fairlead_tracking_inserts_total", "Flows that were recorded.",
				func(s observe.Service) float64 { return float64(s.Tracking.Inserts) }),
			counter("fairlead_tracking_evictions_total", "Recorded flows that were forgotten for lack of room.",
				func(s observe.Service) float64 { return float64(s.Tracking.Evictions) }),
		},
	}.prepared()
}
