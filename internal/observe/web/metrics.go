// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
)

// Limits of scrapes.
const (
	// scrapeTimeout bounds one scrape: Prometheus gives up after 10 seconds by default.
	scrapeTimeout = 9 * time.Second
	// maxScrapes bounds concurrent scrapes.
	maxScrapes = 2
	// maxBackendMetrics is how many backends have metrics of their own, so that a node
	// with tens of thousands doesn't answer each scrape with tens of megabytes. The
	// metrics of services include the backends that are left out.
	maxBackendMetrics = 4096
)

// metricsHandler answers scrapes with the metrics of collectors and of the process.
// Metrics that can't be read are left out; the error is logged and counted.
func metricsHandler(log *slog.Logger, all ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(all...)
	registry.MustRegister(
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

// collector adds all samples of one reading to a scrape, so that its figures fit
// together. Units are seconds and bytes; docs/reference/metrics.md is generated from
// a scrape. Counters of packets are the data plane's: they outlive the agent.
type collector func(*scrape)

// Describe implements prometheus.Collector. Describing nothing makes the collector
// an unchecked one: its metrics are known only when they are collected.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	c(&scrape{to: to, descs: map[string]*prometheus.Desc{}})
}

// scrape takes the samples of one answer.
type scrape struct {
	to    chan<- prometheus.Metric
	descs map[string]*prometheus.Desc // by metric name
}

// labelled are the samples of an object with certain labels.
type labelled struct {
	*scrape
	labels, values []string
}

// with takes labels, each with its value behind it.
func (s *scrape) with(pairs ...string) labelled {
	l := labelled{scrape: s}
	for i := 0; i < len(pairs); i += 2 {
		l.labels, l.values = append(l.labels, pairs[i]), append(l.values, pairs[i+1])
	}
	return l
}

// counter adds a value that only grows while its object exists.
func (l labelled) counter(name, help string, value uint64) {
	l.add(prometheus.CounterValue, name, help, float64(value))
}

// gauge adds a current value.
func (l labelled) gauge(name, help string, value float64) {
	l.add(prometheus.GaugeValue, name, help, value)
}

// flag adds 1 for true and 0 for false.
func (l labelled) flag(name, help string, holds bool) {
	value := 0.0
	if holds {
		value = 1
	}
	l.gauge(name, help, value)
}

// count adds a current number of objects.
func (l labelled) count(name, help string, n int) { l.gauge(name, help, float64(n)) }

func (l labelled) add(kind prometheus.ValueType, name, help string, value float64) {
	desc := l.descs[name]
	if desc == nil {
		desc = prometheus.NewDesc(name, help, l.labels, nil)
		l.descs[name] = desc
	}
	sample, err := prometheus.NewConstMetric(desc, kind, value, l.values...)
	if err != nil {
		sample = prometheus.NewInvalidMetric(desc, err)
	}
	l.to <- sample
}

// agentMetrics collects an agent's metrics.
func agentMetrics(observer *observe.Observer) collector {
	return func(s *scrape) {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
		defer cancel()
		now, err := observer.Read(ctx)
		if err != nil {
			err = fmt.Errorf("agent unreadable: %w", err)
			s.to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
			return
		}
		s.services(now.Services())
		s.backends(now.AllBackends())
		s.agent(now.Status())
		s.announcements(now.Routes().Announcements)
		s.peers(now.Routes().Peers, byAddress)
		s.hook(now.Routes().Hook)
	}
}

// services adds the samples of services that are desired or are being deleted. Their
// counters include removed backends. Most flows have no record: docs/design/tracking.md.
func (s *scrape) services(all []observe.Service) {
	for i := range all {
		v := &all[i]
		m := s.with("service", v.Name, "vip", vipLabel(v.VIP))
		m.counter("fairlead_service_packets_total", "Packets sent to the service's backends.", v.Packets)
		m.counter("fairlead_service_bytes_total", "Bytes of these packets' frames, as received.", v.Bytes)
		m.counter("fairlead_service_new_flows_total", "New flows: each SYN of TCP, each newly recorded flow of UDP.", v.NewFlows)
		m.count("fairlead_service_backends", "Configured backends.", v.Backends)
		m.count("fairlead_service_backends_in_use", "Backends that get new flows.", v.BackendsInUse)
		m.count("fairlead_service_backends_healthy", "Backends that are healthy, or not checked.", v.BackendsHealthy)
		m.count("fairlead_service_backends_unhealthy", "Backends that fail their health check.", max(0, v.Backends-v.BackendsHealthy))
		m.count("fairlead_service_backends_drained", "Backends of weight 0.", v.BackendsDrained)
		m.flag("fairlead_service_panic", "1 while too few backends are healthy, so that health is ignored.", v.Panic)
		m.flag("fairlead_service_drained", "1 while the service is drained on this node.", v.Drained)
		m.flag("fairlead_service_programmed", "1 while the data plane has the current configuration of the service.", v.Programmed)
		m.count("fairlead_service_ring_entries", "Entries of the service's Maglev ring.", v.RingSize)
		m.gauge("fairlead_tracking_unstable_entries", "Ring entries whose flows are recorded because their backend changed recently.",
			float64(v.Tracking.Unstable))
		m.gauge("fairlead_tracking_flows", "Recorded flows and NAT sessions at the last count.", float64(v.Tracking.Flows))
		m.counter("fairlead_tracking_hits_total", "Flow look-ups that found a record.", v.Tracking.Hits)
		m.counter("fairlead_tracking_misses_total", "Flow look-ups that found no record.", v.Tracking.Misses)
		m.counter("fairlead_tracking_inserts_total", "New flow records.", v.Tracking.Inserts)
		m.counter("fairlead_tracking_unrecorded_total", "New flows that were not recorded, as there were too many.", v.Tracking.Unrecorded)
		m.counter("fairlead_tracking_evictions_total", "Flow records evicted from the full table.", v.Tracking.Evictions)
	}
}

// vipLabel writes a virtual address: "10.1.1.1:80/tcp", and its segment behind a
// blank.
func vipLabel(v lb.VIP) string {
	text := netip.AddrPortFrom(v.Address, v.Port).String() + "/" + v.Protocol.String()
	if v.Segment.Tagged() {
		text += " " + v.Segment.String()
	}
	return text
}

// backends are the first ones by VIP and address.
func (s *scrape) backends(all []observe.Backend) {
	s.with().count("fairlead_observe_backends_omitted", "Backends without own metrics, beyond the limit.", max(0, len(all)-maxBackendMetrics))
	for i := range all[:min(len(all), maxBackendMetrics)] {
		b := &all[i]
		m := s.with("service", b.Service, "vip", vipLabel(b.VIP), "backend", netip.AddrPortFrom(b.Address, b.Port).String())
		m.counter("fairlead_backend_packets_total", "Packets sent to the backend.", b.Packets)
		m.counter("fairlead_backend_bytes_total", "Bytes of these packets' frames, as received.", b.Bytes)
		m.counter("fairlead_backend_new_flows_total", "New flows: each SYN of TCP, each newly recorded flow of UDP.", b.NewFlows)
		m.flag("fairlead_backend_in_use", "1 while the backend gets new flows.", b.InUse)
		m.gauge("fairlead_backend_share_ratio", "Share of the service's new flows that the backend gets.", b.Share)
		m.flag("fairlead_backend_drained", "1 while the backend is drained.", b.Drained)
		if h := b.Health.State; h == observe.HealthHealthy || h == observe.HealthUnhealthy {
			m.flag("fairlead_backend_healthy", "Result of the health check: 1 if healthy. Absent without a check and before the first result.",
				h == observe.HealthHealthy)
		}
		if b.Health.Took > 0 {
			m.gauge("fairlead_backend_probe_duration_seconds", "Duration of the last probe.", b.Health.Took.Seconds())
		}
	}
}

// agent adds the samples of the agent as a whole.
func (s *scrape) agent(status observe.Status) {
	for _, e := range status.Exits {
		s.with("exit", e.Name).counter("fairlead_dataplane_packets_total",
			"Packets by exit: passed to the kernel, dropped, forwarded or answered.", e.Packets)
	}
	for _, a := range status.DataPlane.Attachments {
		s.with("interface", a.Interface, "mode", a.Mode).flag("fairlead_dataplane_attachment_info",
			"Interfaces with the program; mode is native (in the driver) or generic (in the network stack, slower).", true)
	}
	s.with(
		"version", status.Version, "commit", status.Commit, "goversion", runtime.Version(),
		"kernel", status.Kernel, "node", status.Node, "dataplane", status.DataPlane.Kind,
	).flag("fairlead_build_info", "Version and commit of the agent, Go version, kernel, node name and kind of data plane.", true)
	m, c := s.with(), status.Config
	m.flag("fairlead_node_draining", "1 while the node drains.", status.Draining)
	m.flag("fairlead_config_refused", "1 while the current configuration file is rejected and the previous one is in effect.", c.Error != "")
	m.gauge("fairlead_config_last_loaded_timestamp_seconds", "Time at which the configuration in effect was read.", float64(c.Loaded.UnixMilli())/1000)
	s.apiServer(status.Kubernetes, "fairlead_kubernetes", "fairlead_kubernetes_api_reachable",
		"1 while the cluster's API server answers. With --kubernetes only, like all fairlead_kubernetes metrics.")
	s.apiServer(status.APIServer, "fairlead_api", "fairlead_api_reachable",
		"1 while the API server answers. With apiServer in the configuration only, like all fairlead_api metrics.")
	s.followed(status.FollowedBackends)
}

// followed adds the samples of services whose backends are followed.
func (s *scrape) followed(all []source.FollowedBackends) {
	for i := range all {
		f := &all[i]
		m := s.with("service", f.Service)
		m.flag("fairlead_service_backends_followed", "1 while the API server or DNS answers. Of services whose backends are followed only, like all fairlead_service_backends metrics.", f.Error == "")
		m.count("fairlead_service_backends_problems", "Problems that prevent followed backends from being used.", len(f.Problems))
		if !f.Answered.IsZero() {
			m.gauge("fairlead_service_backends_answer_timestamp_seconds", "Time at which the followed backends were known to be current. Absent before the first answer.",
				float64(f.Answered.UnixMilli())/1000)
		}
	}
}

// apiServer is an API server that the agent follows; nil for none.
func (s *scrape) apiServer(a *source.State, prefix, reachable, help string) {
	if a == nil {
		return
	}
	m := s.with()
	m.flag(reachable, help, a.Reachable)
	m.flag(prefix+"_synced", "1 once all objects have been read; before that the saved state of an earlier agent may be served.", !a.Synced.IsZero())
	m.count(prefix+"_objects", "Services and LoadBalancers of this node.", a.Objects)
	m.count(prefix+"_problems", "Problems that prevent objects, or parts of them, from being served as specified.", len(a.Problems))
}
