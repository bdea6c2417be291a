// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"fairlead.io/fairlead/internal/observe/httpd"
)

// scrapers is how many connections the metrics' listener has at once.
const scrapers = 32

// collector shows what was decided. Only the leader has decided anything.
type collector struct {
	office *office
	pools  *poolReconciler
	groups *groupReconciler
}

// sample is a metric of the controller's own: all are gauges.
type sample struct {
	name, help string
	labels     []string
}

// samples are all of them, in the order of docs/metrics.md.
func samples() []sample {
	return []sample{
		{"fairlead_controller_leader", "1 while this controller is the one that decides.", nil},
		{"fairlead_controller_waiting", "Services and LoadBalancers that lack an address that they wish for.", nil},
		{"fairlead_controller_group_nodes", "Nodes of the LoadBalancerGroup.", []string{"group"}},
		{"fairlead_controller_group_nodes_ready", "Nodes of the LoadBalancerGroup that are ready, and their agents.", []string{"group"}},
		{"fairlead_controller_group_services", "Services and LoadBalancers that the LoadBalancerGroup serves.", []string{"group"}},
		{"fairlead_controller_group_addresses", "Addresses that the LoadBalancerGroup serves.", []string{"group"}},
		{"fairlead_pool_addresses", "Addresses that the pool has; 2^64 stands for as many and for more.", []string{"pool", "family"}},
		{"fairlead_pool_addresses_assigned", "Addresses of the pool that have an owner, also if another pool gave them that overlaps.", []string{"pool", "family"}},
	}
}

func (s sample) desc() *prometheus.Desc { return prometheus.NewDesc(s.name, s.help, s.labels, nil) }

// Describe tells of all metrics.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, s := range samples() {
		to <- s.desc()
	}
}

// Collect tells what they are now.
func (c collector) Collect(to chan<- prometheus.Metric) {
	all := map[string]*prometheus.Desc{}
	for _, s := range samples() {
		all[s.name] = s.desc()
	}
	tell := func(name string, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(all[name], prometheus.GaugeValue, value, labels...)
	}
	select {
	case <-c.office.began:
	default:
		tell("fairlead_controller_leader", 0)
		return
	}
	tell("fairlead_controller_leader", 1)
	tell("fairlead_controller_waiting", float64(c.office.ledger.Waiting()))
	for _, name := range c.pools.list() {
		usage := c.office.ledger.Usage(name)
		tell("fairlead_pool_addresses", float64(usage.IPv4.Size), name, "IPv4")
		tell("fairlead_pool_addresses", float64(usage.IPv6.Size), name, "IPv6")
		tell("fairlead_pool_addresses_assigned", float64(usage.IPv4.Assigned), name, "IPv4")
		tell("fairlead_pool_addresses_assigned", float64(usage.IPv6.Assigned), name, "IPv6")
	}
	for _, g := range c.groups.known.get() {
		tell("fairlead_controller_group_nodes", float64(g.nodes), g.name)
		tell("fairlead_controller_group_nodes_ready", float64(g.ready), g.name)
		tell("fairlead_controller_group_services", float64(g.services), g.name)
		tell("fairlead_controller_group_addresses", float64(g.addresses), g.name)
	}
}

// list returns the names of the pools.
func (s *shown) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names)
}

// addMetrics has metrics answered at an address of their own: the controller's, and
// controller-runtime's, which are the process's.
func addMetrics(mgr manager.Manager, o *office, pools *poolReconciler, groups *groupReconciler) error {
	if o.options.MetricsAddress == "" {
		return nil
	}
	own := prometheus.NewRegistry()
	if err := own.Register(collector{o, pools, groups}); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{own, metrics.Registry}, promhttp.HandlerOpts{}))
	listener, err := net.Listen("tcp", o.options.MetricsAddress)
	if err != nil {
		return err
	}
	server := &httpd.Server{Name: "metrics", Handler: mux, Connections: scrapers, Log: o.log}
	return mgr.Add(everywhere(func(ctx context.Context) error { return server.Serve(ctx, listener) }))
}

// everywhere runs also while somebody else is the leader.
type everywhere func(context.Context) error

// Start runs it.
func (e everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection says no.
func (everywhere) NeedLeaderElection() bool { return false }
