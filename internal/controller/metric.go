// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"fairlead.io/fairlead/api/v1alpha1"
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
		{"fairlead_controller_waiting", "Services and LoadBalancers whose request for addresses is pending.", nil},
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

// addMetrics registers the controller's metrics in addition to those of controller-runtime. The
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

// reviewTimeout bounds the authentication and authorization of a request.
const reviewTimeout = 5 * time.Second

// requireAccess passes requests with a bearer token whose user may get the path, which
// the API server decides (TokenReview, SubjectAccessReview). The filter of
// controller-runtime does the same, but with the API server's own library it would take
// 30 MB of memory in each agent, which is the same binary.
func requireAccess(config *rest.Config, connection *http.Client) (metricsserver.Filter, error) {
	authentication, err := authenticationclient.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, err
	}
	authorization, err := authorizationclient.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
			defer cancel()
			code, err := review(ctx, authentication, authorization, r)
			if err != nil {
				log.Error(err, "metrics request not reviewed")
			}
			if code != http.StatusOK {
				http.Error(w, http.StatusText(code), code)
				return
			}
			next.ServeHTTP(w, r)
		}), nil
	}, nil
}

// review returns 200 for a request that is allowed, else the code of the response.
func review(
	ctx context.Context, users authenticationclient.TokenReviewsGetter, access authorizationclient.SubjectAccessReviewsGetter, r *http.Request,
) (code int, err error) {
	token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !given || token == "" {
		return http.StatusUnauthorized, nil
	}
	who, err := users.TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return http.StatusInternalServerError, err
	case !who.Status.Authenticated:
		return http.StatusUnauthorized, nil
	}
	user := who.Status.User
	may, err := access.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: "get"},
	}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return http.StatusInternalServerError, err
	case !may.Status.Allowed:
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
