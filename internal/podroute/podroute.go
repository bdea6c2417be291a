// SPDX-License-Identifier: Apache-2.0

// Package podroute leads VIPs to balancer pods: pods of this node that run a balancer of
// their own, and have an address of the cluster's network of pods only. It watches the pods
// of some namespaces, keeps routes to their prefixes in the node's kernel, and announces
// the prefixes next to the routes of the node's own services, with the node as next hop
// (Takahashi's dissertation, figure 4.5). The agent runs it.
package podroute

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"fairlead.io/fairlead/internal/bgp"
)

// Options configure a Router.
type Options struct {
	// API has the address of the API server and the agent's credentials.
	API *rest.Config
	// Shares are the namespaces that may have balancer pods, Node is the name of this node's Node.
	Shares []Share
	Node   string
	// ShutdownDelay is how long the routes of pods that end carry GRACEFUL_SHUTDOWN before
	// they are withdrawn.
	ShutdownDelay time.Duration
	Log           *slog.Logger
}

// Router keeps the routes to balancer pods up to date in Run.
type Router struct {
	Options
	client rest.Interface

	mu sync.Mutex
	// announced are the routes of pods that are to be announced; nil before the first plan.
	announced []bgp.Route
	// inner is the speaker of Announce; nil without one. own are its node's own routes.
	inner  setter
	own    []bgp.Route
	ownSet bool
}

// New returns a Router for Run.
func New(o Options) (*Router, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	own := rest.CopyConfig(o.API)
	own.GroupVersion, own.APIPath = &corev1.SchemeGroupVersion, "/api"
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, err
	}
	return &Router{Options: o, client: client}, nil
}

const (
	// startTimeout is how long Run waits for the list of pods before it announces the routes
	// that an earlier agent has left in the kernel.
	startTimeout = 2 * time.Second
	// retryPause is the pause after an error of the kernel or the speaker.
	retryPause = time.Second
)

// Run keeps the routes up to date until ctx ends, and leaves them to the next agent then.
func (r *Router) Run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	var informers []cache.SharedIndexInformer
	var watching sync.WaitGroup
	defer watching.Wait()
	for i := range r.Shares {
		informer := r.watch(r.Shares[i].Namespace, changed)
		informers = append(informers, informer)
		watching.Go(func() { informer.RunWithContext(klog.NewContext(ctx, logr.Discard())) })
	}
	if !r.awaitLists(ctx, informers) {
		r.adopt()
	}
	since, failed := map[string]time.Time{}, ""
	for ctx.Err() == nil {
		next := time.After(retryPause)
		if listed(informers) {
			now := time.Now()
			p := decide(r.pods(informers, since, now), now, r.ShutdownDelay)
			switch err := r.apply(p); {
			case err == nil:
				failed, next = "", at(p.next)
			case err.Error() != failed:
				r.Log.Error("routes of balancer pods failed, retrying", "error", err)
				failed = err.Error()
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-next:
		}
	}
}

// at fires at a time; the zero Time is never.
func at(t time.Time) <-chan time.Time {
	if t.IsZero() {
		return nil
	}
	return time.After(time.Until(t))
}

// watch returns an informer of the node's pods in a namespace that signals changes.
func (r *Router) watch(namespace string, changed chan struct{}) cache.SharedIndexInformer {
	list := cache.NewListWatchFromClient(r.client, "pods", namespace, fields.OneTermEqualSelector("spec.nodeName", r.Node))
	informer := cache.NewSharedIndexInformer(list, &corev1.Pod{}, 0, nil)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	// The informer hasn't been started, so there are no errors.
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !errors.Is(err, io.EOF) {
			r.Log.Warn("balancer pods not watched, retrying", "namespace", namespace, "error", err)
		}
	})
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { signal() }, UpdateFunc: func(_, _ any) { signal() }, DeleteFunc: func(any) { signal() },
	})
	return informer
}

// awaitLists waits until the pods of all namespaces have been listed, and reports whether they have.
func (r *Router) awaitLists(ctx context.Context, informers []cache.SharedIndexInformer) bool {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return cache.WaitForCacheSync(ctx.Done(), func() bool { return listed(informers) })
}

func listed(informers []cache.SharedIndexInformer) bool {
	return !slices.ContainsFunc(informers, func(i cache.SharedIndexInformer) bool { return !i.HasSynced() })
}

// adopt announces the prefixes of the kernel's routes, as the earlier agent did.
func (r *Router) adopt() {
	prefixes, err := routed()
	if err != nil {
		r.Log.Error("routes of balancer pods not read", "error", err)
	}
	routes := make([]bgp.Route, 0, len(prefixes))
	for _, p := range prefixes {
		routes = append(routes, bgp.Route{Prefix: p})
	}
	if err := r.announce(routes); err != nil {
		r.Log.Error("routes of balancer pods not announced", "error", err)
	}
}

// apply makes a plan the state of kernel and peers. A prefix is announced after its route has
// been installed, and withdrawn before its route is removed; one that fails doesn't block
// others.
func (r *Router) apply(p plan) error {
	reserved, err := nodeAddresses()
	if err != nil {
		return err
	}
	routes, refused, err := permitted(p.routes, reserved)
	failed, wrong := install(routes)
	failed = append(failed, refused...)
	announced := slices.DeleteFunc(p.announced, func(a bgp.Route) bool { return slices.Contains(failed, a.Prefix) })
	return errors.Join(err, wrong, r.announce(announced), removeOthers(routes))
}

// pods returns the balancer pods of all namespaces. since has the times at which pods that end were
// first seen to end, by name.
func (r *Router) pods(informers []cache.SharedIndexInformer, since map[string]time.Time, now time.Time) (all []pod) {
	present := map[string]bool{}
	for i, informer := range informers {
		for _, object := range informer.GetStore().List() {
			from, ok := object.(*corev1.Pod)
			if !ok || from.Annotations[Annotation] == "" {
				continue
			}
			p, err := readPod(from, &r.Shares[i])
			if err != nil {
				r.Log.Error("balancer pod ignored", "namespace", from.Namespace, "pod", from.Name, "error", err)
				continue
			}
			present[p.name] = true
			if from.DeletionTimestamp != nil {
				if since[p.name].IsZero() {
					since[p.name] = now
				}
				p.leaving = since[p.name]
			}
			all = append(all, p)
		}
	}
	for name := range since {
		if !present[name] {
			delete(since, name)
		}
	}
	return all
}
