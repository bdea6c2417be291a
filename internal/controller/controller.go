// SPDX-License-Identifier: Apache-2.0

// Package controller assigns, for a whole Kubernetes cluster, addresses to Services and
// LoadBalancers and decides which nodes serve them. It has one reconciler for each kind
// and publishes its decisions in statuses, which the agents read.
// "fairlead controller" runs it. Package alloc has the rules, without
// any Kubernetes types.
//
// No address is in the statuses of two owners that can't share it, whatever fails or stalls, and however
// many controllers run: an address has one owner by the object of its name, an AssignedAddress, which is
// written before any status. docs/design/addresses.md has the rules.
//
// A version of an object that is older than the version of the last decision is ignored, unless the API
// server itself has no newer one: a cache may be older than the lists of the initial sync.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"fairlead.io/fairlead/api/v1alpha1"
)

// Options configure a controller.
type Options struct {
	// Namespace has the controller's Lease and the agents' pods.
	Namespace string
	// Nodes reaches the cluster of the balancers' nodes and their agents, if that is another one
	// than the cluster of all other objects; nil for the same. Only LoadBalancers are served then.
	Nodes *rest.Config
	// DefaultClass says whether the controller is responsible for Services without a class;
	// empty for DefaultClassNever.
	DefaultClass DefaultClass
	// LeaderElect elects a leader by a Lease. Without it only one controller may run.
	LeaderElect bool
	// LeaseDuration is the time without renewal after which another controller takes
	// over; 0 for 15 seconds.
	LeaseDuration time.Duration
	// MetricsAddress serves /metrics, HealthAddress /healthz and /readyz; empty for none.
	MetricsAddress, HealthAddress string
	// MetricsSecure serves metrics over TLS, to clients that authenticate with a token and
	// are authorized to get /metrics.
	MetricsSecure bool
	// HashSeedSecret is a Secret in Namespace that gets a random hash seed if it has none;
	// empty for none.
	HashSeedSecret string
	// AgentGrace is how long an agent may be not ready before a spare node replaces its
	// node.
	AgentGrace time.Duration
	Log        *slog.Logger
}

const (
	leaseName            = "fairlead-controller"
	defaultLeaseDuration = 15 * time.Second
	// workers is the number of concurrent reconciliations of a kind.
	workers = 8
	// cacheSyncTimeout is practically infinite: controllers wait for an unreachable API
	// server, and for kinds that aren't installed yet.
	cacheSyncTimeout = 365 * 24 * time.Hour
	// shutdownGrace is how long reconcilers may take to end while the Lease is still
	// renewed: less than a pod's default grace period.
	shutdownGrace = 20 * time.Second
)

// Run runs a controller until ctx ends, when it releases its Lease, or until it loses the
// Lease or another error occurs. The process must exit afterwards. A controller without
// Lease waits while the API server is unreachable.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the API server's own priority and fairness is the limit
	options.LeaseDuration = cmp.Or(options.LeaseDuration, defaultLeaseDuration)
	if options.Nodes != nil {
		options.DefaultClass = DefaultClassNever
	}
	d := newDeps(options)
	mgr, err := newManager(config, options)
	if err != nil {
		return err
	}
	d.Client, d.live = mgr.GetClient(), mgr.GetAPIReader()
	d.cache, d.nodes = mgr.GetCache(), mgr.GetCache()
	if options.Nodes != nil {
		if d.nodes, err = addNodesCache(mgr, options); err != nil {
			return err
		}
	}
	d.events = mgr.GetEventRecorder(leaseName)
	f := &cacheFiller{deps: d, done: make(chan struct{})}
	if err := errors.Join(mgr.Add(everywhere(f.fill)), mgr.AddReadyzCheck("cache", f.ready),
		mgr.Add(manager.RunnableFunc(initialSync{deps: d}.run)), addReconcilers(mgr, d)); err != nil {
		return err
	}
	if options.HashSeedSecret != "" {
		if err := mgr.Add(manager.RunnableFunc(d.writeSeed)); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// newLease returns the Lease for leader election.
func newLease(config *rest.Config, options Options) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	identity := fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano())
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, options.Namespace, leaseName,
		resourcelock.ResourceLockConfig{Identity: identity}, config, renewal(options.LeaseDuration))
	if err != nil {
		return nil, fmt.Errorf("lease %s/%s: %w", options.Namespace, leaseName, err)
	}
	return lock, nil
}

// renewal is how long a leader continues without renewing its Lease: less than the lease
// duration, to tolerate clocks of different speed.
func renewal(lease time.Duration) time.Duration { return lease * 2 / 3 }

func newManager(config *rest.Config, options Options) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	o := manager.Options{
		Scheme:                  scheme,
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return newMapper(scheme), nil },
		Logger:                  logr.FromSlogHandler(options.Log.Handler()),
		Cache:                   cacheOptions(options.Namespace),
		Metrics:                 metricsOptions(options),
		HealthProbeBindAddress:  options.HealthAddress,
		LeaderElection:          options.LeaderElect,
		LeaseDuration:           new(options.LeaseDuration),
		RenewDeadline:           new(renewal(options.LeaseDuration)),
		RetryPeriod:             new(options.LeaseDuration / 8),
		GracefulShutdownTimeout: new(shutdownGrace),
		// The Lease is released after all reconcilers have ended.
		LeaderElectionReleaseOnCancel: true,
	}
	if options.LeaderElect {
		lease, err := newLease(config, options)
		if err != nil {
			return nil, err
		}
		o.LeaderElectionResourceLockInterface = lease
	}
	o.Controller.SkipNameValidation = new(true) // two in one process, in tests
	o.Controller.CacheSyncTimeout = cacheSyncTimeout
	// The priority queue of controller-runtime 0.24.1 can hang when it is shut down:
	// https://github.com/kubernetes-sigs/controller-runtime/issues/3538
	o.Controller.UsePriorityQueue = new(false)
	mgr, err := manager.New(config, o)
	if err != nil {
		return nil, err
	}
	return mgr, mgr.AddHealthzCheck("ping", healthz.Ping)
}

// addNodesCache adds the cache of the nodes' cluster. It fills as soon as that cluster's API server
// responds, and keeps its objects while the API server is away.
func addNodesCache(mgr manager.Manager, options Options) (cache.Cache, error) {
	config := rest.CopyConfig(options.Nodes)
	config.QPS = -1
	o := cacheOptions(options.Namespace)
	o.Scheme, o.Mapper = mgr.GetScheme(), mgr.GetRESTMapper()
	nodes, err := cache.New(config, o)
	if err != nil {
		return nil, fmt.Errorf("cluster of nodes: %w", err)
	}
	return nodes, mgr.Add(everywhere(nodes.Start))
}

// addReconcilers adds the reconcilers. All groups are one request, and so are all pools.
func addReconcilers(mgr manager.Manager, o *deps) error {
	each := &handler.EnqueueRequestForObject{}
	// add calls run for the requests of changed objects of some kinds, and for the requests of t.
	// Updates of objects count only if changed says so; nil for all.
	add := func(name string, run reconcile.Func, concurrent int, t *trigger, requests handler.EventHandler, changed changedFunc, kinds ...client.Object) error {
		c, err := controller.New(name, mgr, controller.Options{
			Reconciler:              o.afterSync(run),
			MaxConcurrentReconciles: concurrent,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLast),
		})
		if err != nil {
			return fmt.Errorf("reconciler %s: %w", name, err)
		}
		for _, kind := range kinds {
			from, kind := o.cacheOf(kind)
			if err := c.Watch(source.Kind(from, kind, requests, changed.predicates()...)); err != nil {
				return fmt.Errorf("reconciler %s: %w", name, err)
			}
		}
		return c.Watch(t)
	}
	pools := &poolReconciler{deps: o}
	groups := &groupReconciler{
		deps:     o,
		nodes:    newNodeTracker(o.options.AgentGrace),
		assigned: map[string][]string{},
	}
	return errors.Join(
		add("service", serviceReconciler{o}.reconcile, workers, &o.services, each, nil, &corev1.Service{}),
		add("loadbalancer", balancerReconciler{o}.reconcile, workers, &o.balancers, each, nil, &v1alpha1.LoadBalancer{}),
		add("loadbalancerpolicy", policyReconciler{o}.reconcile, 1, &trigger{}, enqueueAll(policyDelay), policyChanged,
			&v1alpha1.LoadBalancerGroup{}, &v1alpha1.AddressPool{}, &v1alpha1.BGPPeer{}, &v1alpha1.BalancerNode{},
			ofNodesCluster{&corev1.Node{}}, ofNodesCluster{&corev1.Service{}}),
		add("namespace", namespaceReconciler{o}.reconcile, 1, &trigger{}, each, nil, namespaceMetadata()),
		add("assignedaddress", addressReconciler{o}.reconcile, 1, &trigger{}, enqueueWritten(), nil, &v1alpha1.AssignedAddress{}),
		add("addresspool", pools.reconcile, 1, &o.pools, enqueuePools(), poolsChanged,
			&v1alpha1.AddressPool{}, &corev1.Service{}, &v1alpha1.LoadBalancer{}),
		add("loadbalancergroup", groups.reconcile, 1, &o.members, enqueueAll(placementDelay), membersChanged,
			&v1alpha1.LoadBalancerGroup{}, ofNodesCluster{&corev1.Node{}}, ofNodesCluster{&corev1.Pod{}}, &v1alpha1.BalancerNode{}),
		add("scaling", (&scalingReconciler{deps: o}).reconcile, 1, &trigger{}, enqueueAll(reportDelay), loadChanged,
			&v1alpha1.LoadBalancerGroup{}, &v1alpha1.BalancerNode{}),
		add("quota", quotaReconciler{o}.reconcile, 1, &o.namespaces, o.quotaRequests(), o.quotaChanged,
			&corev1.Service{}, &v1alpha1.LoadBalancer{}, &discoveryv1.EndpointSlice{}, &v1alpha1.LoadBalancerGroup{}),
		add("report", (&reportReconciler{deps: o}).reconcile, 1, &trigger{}, enqueueReports(), reportsChanged,
			&v1alpha1.BalancerNode{}, &v1alpha1.BGPPeer{}, &v1alpha1.LoadBalancerGroup{}, ofNodesCluster{&corev1.Node{}}, ofNodesCluster{&corev1.Pod{}},
			&corev1.Service{}, &v1alpha1.LoadBalancer{}),
		addMetrics(mgr, o),
	)
}

// enqueueAll enqueues one request for all objects after a delay.
func enqueueAll(delay time.Duration) handler.EventHandler {
	return enqueueAfter(func(client.Object) time.Duration { return delay })
}

// enqueuePools is enqueueAll for pools, and for the objects that have their addresses.
func enqueuePools() handler.EventHandler {
	return enqueueAfter(func(object client.Object) time.Duration {
		if _, is := object.(*v1alpha1.AddressPool); is {
			return 0
		}
		return usageDelay
	})
}

// enqueueReports is enqueueAll for the objects that conditions are made of. A change of an object
// that groups serve changes reports of nodes soon.
func enqueueReports() handler.EventHandler {
	return enqueueAfter(func(object client.Object) time.Duration {
		switch object.(type) {
		case *corev1.Service, *v1alpha1.LoadBalancer:
			return servedDelay
		}
		return reportDelay
	})
}

// enqueueWritten enqueues each object after a delay: the response to the controller's own write may arrive
// later than the event, without which the object would be read at the API server.
func enqueueWritten() handler.EventHandler {
	return enqueueRequests(func(object client.Object) (reconcile.Request, time.Duration) {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}, staleDelay
	})
}

// enqueueAfter enqueues one request for all objects after the delay of the changed one.
func enqueueAfter(delay func(client.Object) time.Duration) handler.EventHandler {
	return enqueueRequests(func(object client.Object) (reconcile.Request, time.Duration) {
		return reconcile.Request{}, delay(object)
	})
}

// enqueueRequests enqueues the request of a changed object after a delay.
func enqueueRequests(of func(client.Object) (reconcile.Request, time.Duration)) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(q queue, object client.Object) { q.AddAfter(of(object)) }
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(q, e.Object) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { enqueue(q, e.ObjectNew) },
	}
}

// changedFunc reports whether an update of an object matters to a reconciler.
type changedFunc func(before, now client.Object) bool

func (f changedFunc) predicates() []predicate.Predicate {
	if f == nil {
		return nil
	}
	return []predicate.Predicate{predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return f(e.ObjectOld, e.ObjectNew) }}}
}

// Failed requests are retried with exponential backoff between retryFirst and retryLast.
// The default limit of the library, a quarter of an hour, is too long after an outage of
// the API server.
const (
	retryFirst = 5 * time.Millisecond
	retryLast  = 10 * time.Second
)

// RunWithKubeconfig is Run with the API server of a kubeconfig file, or of the pod's service
// account if the path is empty. The nodes' cluster has the API server of a second file, unless its
// path is empty. The libraries log to o.Log.
func RunWithKubeconfig(ctx context.Context, kubeconfig, nodesKubeconfig string, o Options) error {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return fmt.Errorf("no --kubeconfig, and not running in a pod: %w", err)
		}
	} else if config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if nodesKubeconfig != "" {
		if o.Nodes, err = clientcmd.BuildConfigFromFlags("", nodesKubeconfig); err != nil {
			return fmt.Errorf("kubeconfig of the nodes' cluster: %w", err)
		}
	}
	// The loggers of the libraries are global.
	bridge := logr.FromSlogHandler(o.Log.Handler())
	klog.SetLogger(bridge)
	ctrllog.SetLogger(bridge)
	return Run(ctx, config, o)
}
