// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
)

// ReflectorHandler answers requests for a route reflector's metrics, and for
// those of its process.
func ReflectorHandler(reflector observe.Reflector, log *slog.Logger) http.Handler {
	return handler(newReflectorCollector(reflector), log)
}

// reflectorCollector collects all subjects of a reflector.
type reflectorCollector struct {
	reflector observe.Reflector
	subjects  []collectable
}

func newReflectorCollector(r observe.Reflector) *reflectorCollector {
	return &reflectorCollector{reflector: r, subjects: []collectable{sessions(byRouterID()), messages(byRouterID()), reflected(), admission(r)}}
}

// Describe implements prometheus.Collector.
func (c *reflectorCollector) Describe(to chan<- *prometheus.Desc) {
	for _, s := range c.subjects {
		s.describe(to)
	}
}

// Collect implements prometheus.Collector.
func (c *reflectorCollector) Collect(to chan<- prometheus.Metric) {
	now := &look{Reading: observe.Reading{Routes: c.reflector.Routes()}}
	for _, s := range c.subjects {
		s.collect(now, to)
	}
}

// reflection is a prefix with all of its next hops.
type reflection struct {
	prefix        netip.Prefix
	hops, clients int
}

// reflected are the prefixes that are passed on.
func reflected() collectable {
	return subject[*reflection]{
		labels: []string{"prefix"},
		things: func(l *look) (all []*reflection) {
			for _, a := range l.Routes.Announcements { // sorted by prefix
				if n := len(all); n == 0 || all[n-1].prefix != a.Prefix {
					all = append(all, &reflection{prefix: a.Prefix})
				}
				last := all[len(all)-1]
				last.hops++
				last.clients += len(a.From)
			}
			return all
		},
		values: func(r *reflection) []string { return []string{r.prefix.String()} },
		metrics: []metric[*reflection]{
			gauge("fairlead_reflector_route_next_hops", "Different next hops with which the prefix is passed on.",
				func(r *reflection) float64 { return float64(r.hops) }),
			gauge("fairlead_reflector_route_clients", "Clients that announce the prefix.",
				func(r *reflection) float64 { return float64(r.clients) }),
		},
	}.prepared()
}

// admission is who is a client, and who isn't let in.
func admission(r observe.Reflector) collectable {
	return subject[int]{
		things: func(l *look) []int {
			clients := 0
			for _, p := range l.Routes.Peers {
				if p.Dynamic && p.State == bgp.Established {
					clients++
				}
			}
			return []int{clients}
		},
		metrics: []metric[int]{
			gauge("fairlead_reflector_clients", "Clients with an established session.",
				func(clients int) float64 { return float64(clients) }),
			gauge("fairlead_reflector_begun", "1 once clients of an earlier life have been waited for and routers are told what there is.",
				func(int) float64 { return truth(r.Begun()) }),
			counter("fairlead_reflector_refused_total", "Connections that were refused: from no range of clients, from one that is full, or of callers who don't say who they are.",
				func(int) float64 { return float64(r.Refused()) }),
		},
	}.prepared()
}
