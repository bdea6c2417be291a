// SPDX-License-Identifier: Apache-2.0

package metric

import "fairlead.io/fairlead/internal/reconcile"

// operation is what the reconciler asks of the data plane.
type operation struct {
	name string
	reconcile.Calls
}

func operations() collectable {
	return subject[operation]{
		labels: []string{"operation"},
		things: func(l *look) []operation {
			return []operation{{"update", l.work.Update}, {"delete", l.work.Delete}, {"prune", l.work.Prune}}
		},
		values: func(o operation) []string { return []string{o.name} },
		metrics: []metric[operation]{
			histogram("fairlead_reconcile_duration_seconds", "Time of the data plane for one call: update or delete of one service, prune of what an earlier agent left.",
				func(o operation) reconcile.Durations { return o.Took }),
			counter("fairlead_reconcile_errors_total", "Calls that failed; they are tried again.",
				func(o operation) float64 { return float64(o.Failures) }),
		},
	}.prepared()
}

func changes() collectable {
	return subject[reconcile.Work]{
		things: func(l *look) []reconcile.Work { return []reconcile.Work{l.work} },
		metrics: []metric[reconcile.Work]{
			histogram("fairlead_reconcile_delay_seconds", "Time from a change of a service until the data plane had it, waiting and retries included.",
				func(w reconcile.Work) reconcile.Durations { return w.Delay }),
		},
	}.prepared()
}
