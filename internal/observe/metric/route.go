// SPDX-License-Identifier: Apache-2.0

package metric

import "fairlead.io/fairlead/internal/observe"

// announcements are the prefixes that are announced, or would be.
func announcements() collectable {
	return subject[observe.Announcement]{
		labels: []string{"prefix"},
		things: func(l *look) []observe.Announcement { return l.Routes.Announcements },
		values: func(a observe.Announcement) []string { return []string{a.Prefix.String()} },
		metrics: []metric[observe.Announcement]{
			gauge("fairlead_bgp_route_announced", "1 while the prefix is announced.",
				func(a observe.Announcement) float64 { return truth(a.Announced) }),
			gauge("fairlead_bgp_route_leaving", "1 while peers are told to prefer other routes, as this one will go (GRACEFUL_SHUTDOWN).",
				func(a observe.Announcement) float64 { return truth(a.GracefulShutdown) }),
			gauge("fairlead_bgp_route_peers", "Peers that have the prefix from this node.",
				func(a observe.Announcement) float64 { return float64(len(a.Peers)) }),
			counter("fairlead_bgp_route_withdrawals_total", "How often the prefix was withdrawn.",
				func(a observe.Announcement) float64 { return float64(a.Withdrawals) }),
		},
	}.prepared()
}
