// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// buckets reach, in seconds, from a service that is as it was to thousands that
// change at once.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}

// The calls of the data plane, as label values.
const (
	opUpdate = "update"
	opDelete = "delete"
	opPrune  = "prune"
)

// metrics count a reconciler's calls and changes.
type metrics struct {
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	delay    prometheus.Histogram
}

func newMetrics() *metrics {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_reconcile_duration_seconds", Buckets: buckets,
			Help: "Duration of a call of the data plane: update or delete of a service, or prune.",
		}, []string{"operation"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_reconcile_errors_total", Help: "Failed calls of the data plane; they are retried.",
		}, []string{"operation"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairlead_reconcile_delay_seconds", Buckets: buckets,
			Help: "Time from a change of a service until it is programmed, with waiting and retries.",
		}),
	}
	for _, op := range []string{opUpdate, opDelete, opPrune} {
		m.duration.WithLabelValues(op)
		m.errors.WithLabelValues(op)
	}
	return m
}

// Metrics returns the metrics of all calls and changes. A change that another one
// overtook doesn't count.
func (r *Reconciler) Metrics() []prometheus.Collector {
	return []prometheus.Collector{r.metrics.duration, r.metrics.errors, r.metrics.delay}
}

// Calling is when the call that the data plane is working on began; zero while
// there is none. A time long ago means that the data plane hangs.
func (r *Reconciler) Calling() time.Time {
	if began := r.calling.Load(); began != nil {
		return *began
	}
	return time.Time{}
}

// call calls the data plane, and counts the call.
func (r *Reconciler) call(op string, do func() error) (time.Duration, error) {
	start := time.Now()
	r.calling.Store(&start)
	err := do()
	took := time.Since(start)
	r.calling.Store(nil)
	r.metrics.duration.WithLabelValues(op).Observe(took.Seconds())
	if err != nil {
		r.metrics.errors.WithLabelValues(op).Inc()
	}
	return took, err
}
