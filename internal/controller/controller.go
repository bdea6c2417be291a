// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"fairlead.io/fairlead/api/v1alpha1"
)

// Options are how a controller runs.
type Options struct {
	// Namespace is the controller's own: of its Lease, and of the agents' pods.
	Namespace string
	// DefaultClass takes Services without a class too.
	DefaultClass bool
	// LeaderElect lets only the holder of a Lease decide. Without it there has to be
	// one controller only.
	LeaderElect bool
	// LeaseDuration is after what time without renewal another controller begins; 15
	// seconds, if it is 0.
	LeaseDuration time.Duration
	// MetricsAddress and HealthAddress are where /metrics, and /healthz and /readyz, are
	// answered; nowhere, if they are empty.
	MetricsAddress, HealthAddress string
	// AgentGrace is for how long an agent may be away before a spare node takes the
	// place of its node.
	AgentGrace time.Duration
	Log        *slog.Logger
}

const (
	leaseName            = "fairlead-controller"
	defaultLeaseDuration = 15 * time.Second
	// workers is how many Services are written at the same time.
	workers = 8
	// forever is how long reconcilers wait for what they watch: an API server that is away,
	// or kinds that aren't installed yet, are no reason to end.
	forever = 365 * 24 * time.Hour
	// shutdownGrace is for how long reconcilers may take to end, while the lease is
	// still renewed: less than a pod has by default.
	shutdownGrace = 20 * time.Second
)

// Run runs a controller until ctx ends, when it gives its lease back, or until it has
// lost that, or something else fails. The process has to end then. While the API server
// is away a controller without a lease waits.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the API server's own priority and fairness is the limit
	office := newOffice(options)
	if options.LeaderElect {
		tenure, err := newLease(config, options)
		if err != nil {
			return err
		}
		office.tenure = tenure
	}
	mgr, err := newManager(config, options, office)
	if err != nil {
		return err
	}
	office.Client, office.live = mgr.GetClient(), mgr.GetAPIReader()
	office.events = mgr.GetEventRecorder(leaseName)
	if err := addFollower(mgr, office); err != nil {
		return err
	}
	if err := mgr.Add(takeOver{office}); err != nil {
		return err
	}
	if err := addReconcilers(mgr, office); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newLease returns the Lease by which one of several controllers is elected.
func newLease(config *rest.Config, options Options) (*tenure, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	identity := fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano())
	duration := leaseDuration(options)
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, options.Namespace, leaseName,
		resourcelock.ResourceLockConfig{Identity: identity}, config, renewal(duration))
	if err != nil {
		return nil, fmt.Errorf("lease %s/%s: %w", options.Namespace, leaseName, err)
	}
	return newTenure(lock, renewal(duration)), nil
}

func leaseDuration(options Options) time.Duration {
	if options.LeaseDuration == 0 {
		return defaultLeaseDuration
	}
	return options.LeaseDuration
}

// renewal is for how long a leader goes on whose lease can't be renewed: less than
// others wait, so that clocks that run differently don't matter.
func renewal(lease time.Duration) time.Duration { return lease * 2 / 3 }

func newManager(config *rest.Config, options Options, office *office) (manager.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	duration := leaseDuration(options)
	o := manager.Options{
		Scheme:                  scheme,
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return newMapper(scheme), nil },
		Logger:                  logr.FromSlogHandler(options.Log.Handler()),
		Cache:                   cacheOptions(options.Namespace),
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  options.HealthAddress,
		LeaderElection:          options.LeaderElect,
		LeaseDuration:           new(duration),
		RenewDeadline:           new(renewal(duration)),
		RetryPeriod:             new(duration / 8),
		GracefulShutdownTimeout: new(shutdownGrace),
		// The lease is given back when all reconcilers have ended.
		LeaderElectionReleaseOnCancel: true,
	}
	if office.tenure != nil {
		o.LeaderElectionResourceLockInterface = office.tenure
	}
	o.Controller.SkipNameValidation = new(true) // two in one process, in tests
	o.Controller.CacheSyncTimeout = forever
	// The priority queue of controller-runtime 0.24.1 can hang when it is shut down:
	// https://github.com/kubernetes-sigs/controller-runtime/issues/3538
	o.Controller.UsePriorityQueue = new(false)
	mgr, err := manager.New(config, o)
	if err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	return mgr, nil
}

// addFollower has the caches filled, and the controller be ready when they are.
func addFollower(mgr manager.Manager, office *office) error {
	f := newFollower(office, mgr.GetCache())
	if err := mgr.Add(f); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("cache", f.ready)
}

// addReconcilers has a reconciler of each kind run. Groups and pools are one request
// each, whichever object changed.
func addReconcilers(mgr manager.Manager, o *office) error {
	many := controller.Options{MaxConcurrentReconciles: workers}
	groups := newGroupReconciler(o)
	pools := &poolReconciler{office: o}
	for _, add := range []func() error{
		func() error {
			return newReconciler(mgr, "service", serviceReconciler{o}.reconcile, o, &o.services, many, &corev1.Service{})
		},
		func() error {
			return newReconciler(mgr, "loadbalancer", balancerReconciler{o}.reconcile, o, &o.balancers, many, &v1alpha1.LoadBalancer{})
		},
		func() error {
			return newReconciler(mgr, "namespace", namespaceReconciler{o}.reconcile, o, &bell{}, controller.Options{}, namespaceMetadata())
		},
		func() error {
			return newSingle(mgr, "addresspool", pools.reconcile, o, &o.pools, &v1alpha1.AddressPool{})
		},
		func() error {
			return newSingle(mgr, "loadbalancergroup", groups.reconcile, o, &o.members,
				&v1alpha1.LoadBalancerGroup{}, &corev1.Node{}, &corev1.Pod{})
		},
	} {
		if err := add(); err != nil {
			return err
		}
	}
	return addMetrics(mgr, o, pools, groups)
}
