// SPDX-License-Identifier: Apache-2.0

// Package metric shows an agent, or a route reflector, to Prometheus.
//
// It stands beside observe at the end of the story of DESIGN.md §1, and reads
// what observe reads: each scrape is one look at the agent, so that its figures
// fit together, and nothing is counted twice. Each file has the metrics of one
// subject; docs/metrics.md is made of them. Units are seconds and bytes.
//
// Counters of packets are the data plane's, which outlive the agent: they go on
// where they were when it is started again.
package metric

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/reconcile"
)

// What scrapers may take of the agent.
const (
	// scrapeTimeout is how long one may take: Prometheus gives up after 10 seconds
	// unless it is told otherwise.
	scrapeTimeout = 9 * time.Second
	// maxScrapes go on at a time.
	maxScrapes = 2
)

// Handler answers requests for the agent's metrics, and for those of its
// process. What can't be read is left out, logged and counted.
func Handler(agent observe.Agent, log *slog.Logger) http.Handler {
	return handler(newCollector(agent), log)
}

// handler answers with what a collector collects, and with what is known of the
// process.
func handler(collector prometheus.Collector, log *slog.Logger) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collector,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		Registry:            registry,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	})
}

// look is what one scrape shows.
type look struct {
	observe.Reading
	work reconcile.Work
	// kernel is the release that runs.
	kernel string
}

// collector collects all subjects of an agent.
type collector struct {
	subjects
	agent observe.Agent
}

// collectable is a subject of things of any type.
type collectable interface {
	references() []reference
	describe(to chan<- *prometheus.Desc)
	collect(look *look, to chan<- prometheus.Metric)
}

// subjects are those of one kind of process.
type subjects []collectable

// Describe implements prometheus.Collector.
func (s subjects) Describe(to chan<- *prometheus.Desc) {
	for _, one := range s {
		one.describe(to)
	}
}

func (s subjects) collect(now *look, to chan<- prometheus.Metric) {
	for _, one := range s {
		one.collect(now, to)
	}
}

func newCollector(agent observe.Agent) *collector {
	return &collector{agent: agent, subjects: subjects{
		services(), backends(), exits(), tracking(),
		attachments(), operations(), changes(), announcements(), sessions(byAddress()), messages(byAddress()),
		configuration(), cluster(), node(), build(),
	}}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	reading, err := c.agent.Read(ctx)
	if err != nil {
		err = fmt.Errorf("agent unreadable: %w", err)
		to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	c.collect(&look{Reading: reading, work: c.agent.Work(), kernel: c.agent.Kernel}, to)
}
