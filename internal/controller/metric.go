// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/httpd/review"
)

// collector exports the decisions of the leader, those about groups as published in their
// statuses.
type collector struct{ *deps }

// sample is a metric of the controller; all are gauges.
type sample struct {
	name, help string
	labels     []string
}

// samples returns all metrics, in the order of docs/reference/metrics.md.
func samples() []sample {
	return []sample{
		{"fairlead_controller_leader", "1 while this controller is the leader.", nil},
		{"fairlead_controller_waiting", "Services and LoadBalancers whose request for addresses is pending, and Services that wait because of another controller.", nil},
		{"fairlead_controller_group_nodes", "Nodes of the LoadBalancerGroup.", []string{"group"}},
		{"fairlead_controller_group_nodes_ready", "Nodes of the LoadBalancerGroup that are ready and have a ready agent.", []string{"group"}},
		{"fairlead_controller_group_services", "Services and LoadBalancers that the LoadBalancerGroup serves.", []string{"group"}},
		{"fairlead_controller_group_addresses", "Addresses that the LoadBalancerGroup serves.", []string{"group"}},
		{"fairlead_pool_addresses", "Addresses of the pool, at most 2^64.", []string{"pool", "family"}},
		{"fairlead_pool_addresses_assigned", "Assigned addresses of the pool, including those assigned from an overlapping pool.", []string{"pool", "family"}},
	}
}

func (s sample) desc() *prometheus.Desc { return prometheus.NewDesc(s.name, s.help, s.labels, nil) }

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, s := range samples() {
		to <- s.desc()
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	all := map[string]*prometheus.Desc{}
	for _, s := range samples() {
		all[s.name] = s.desc()
	}
	send := func(name string, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(all[name], prometheus.GaugeValue, value, labels...)
	}
	select {
	case <-c.synced:
	default:
		send("fairlead_controller_leader", 0)
		return
	}
	send("fairlead_controller_leader", 1)
	send("fairlead_controller_waiting", float64(c.allocations.Waiting()))
	var pools v1alpha1.AddressPoolList
	var groups v1alpha1.LoadBalancerGroupList
	if err := errors.Join(c.List(context.Background(), &pools), c.List(context.Background(), &groups)); err != nil {
		c.log.Warn("pools and groups not in metrics", "error", err)
	}
	for _, p := range pools.Items {
		if !p.DeletionTimestamp.IsZero() {
			continue
		}
		usage := c.allocations.Usage(p.Name)
		send("fairlead_pool_addresses", float64(usage.IPv4.Size), p.Name, "IPv4")
		send("fairlead_pool_addresses", float64(usage.IPv6.Size), p.Name, "IPv6")
		send("fairlead_pool_addresses_assigned", float64(usage.IPv4.Assigned), p.Name, "IPv4")
		send("fairlead_pool_addresses_assigned", float64(usage.IPv6.Assigned), p.Name, "IPv6")
	}
	for _, g := range groups.Items {
		if !g.DeletionTimestamp.IsZero() {
			continue
		}
		send("fairlead_controller_group_nodes", float64(len(g.Status.Nodes)), g.Name)
		send("fairlead_controller_group_nodes_ready", float64(g.Status.ReadyNodes), g.Name)
		send("fairlead_controller_group_services", float64(g.Status.Services), g.Name)
		send("fairlead_controller_group_addresses", float64(g.Status.Addresses), g.Name)
	}
}

// addMetrics registers the controller's metrics in addition to controller-runtime's metrics. The
// collector is removed when the manager stops.
func addMetrics(mgr manager.Manager, o *deps) error {
	if o.options.MetricsAddress == "" {
		return nil
	}
	c := collector{o}
	if err := metrics.Registry.Register(c); err != nil {
		return err
	}
	return mgr.Add(everywhere(func(ctx context.Context) error {
		<-ctx.Done()
		metrics.Registry.Unregister(c)
		return nil
	}))
}

// everywhere is a runnable of leaders and followers.
type everywhere func(context.Context) error

// Start implements manager.Runnable.
func (e everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection returns false.
func (everywhere) NeedLeaderElection() bool { return false }

// metricsOptions configures the server of /metrics. With authentication it uses TLS with
// a self-signed certificate, and clients need a token that may get /metrics.
func metricsOptions(options Options) metricsserver.Options {
	if options.MetricsAddress == "" {
		return metricsserver.Options{BindAddress: "0"}
	}
	o := metricsserver.Options{BindAddress: options.MetricsAddress}
	if options.MetricsSecure {
		o.SecureServing, o.FilterProvider = true, requireAccess
	}
	return o
}

// requireAccess passes requests with a bearer token whose user may get /metrics.
func requireAccess(config *rest.Config, _ *http.Client) (metricsserver.Filter, error) {
	reviewer, err := review.New(config)
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return reviewer.Require(next, slog.New(logr.ToSlogHandler(log))), nil
	}, err
}
