// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the server's metrics.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	failures prometheus.Counter
	refused  prometheus.GaugeFunc
}

func newMetrics(keys *keyring) *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_apiserver_requests_total", Help: "Requests by method and status code.",
		}, []string{"method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_apiserver_request_duration_seconds", Help: "Time from the header of a request to its response.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"method"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_apiserver_authentication_failures_total", Help: "Requests without a valid token or certificate.",
		}),
		refused: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fairlead_apiserver_credentials_refused", Help: "1 while the files with credentials have an error and earlier contents are in use.",
		}, func() float64 {
			if keys.refused.Load() {
				return 1
			}
			return 0
		}),
	}
}

// collectors returns all metrics.
func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.duration, m.failures, m.refused}
}

// count counts a request. Only methods of routes are counted.
func (m *metrics) count(method string, status int) {
	m.requests.WithLabelValues(method, strconv.Itoa(status)).Inc()
}

// observe observes the duration of a request.
func (m *metrics) observe(method string, took time.Duration) {
	m.duration.WithLabelValues(method).Observe(took.Seconds())
}

// handler answers scrapes, and probes: ready returns why the server isn't ready.
func (m *metrics) handler(log *slog.Logger, ready func() error) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.collectors()...)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError, Registry: registry,
	}))
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET "+readyPath, func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}
