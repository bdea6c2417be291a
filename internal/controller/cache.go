// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
	"fairlead.io/fairlead/internal/wait"
)

// newMapper returns a static mapping of the kinds, so that a controller can start while
// the API server is unreachable.
func newMapper(scheme *runtime.Scheme) meta.RESTMapper {
	core, own := corev1.SchemeGroupVersion, v1alpha1.GroupVersion()
	mapper := meta.NewDefaultRESTMapper(scheme.PreferredVersionAllGroups())
	for _, of := range []struct {
		version schema.GroupVersion
		scope   meta.RESTScope
		kinds   []string
	}{
		{core, meta.RESTScopeNamespace, []string{"Service", "Pod", "Secret"}},
		{core, meta.RESTScopeRoot, []string{"Node", "Namespace"}},
		{discoveryv1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"EndpointSlice"}},
		{own, meta.RESTScopeNamespace, []string{"LoadBalancer"}},
		{own, meta.RESTScopeRoot, []string{"AddressPool", "AssignedAddress", "LoadBalancerGroup", "BGPPeer", "BalancerNode"}},
	} {
		for _, kind := range of.kinds {
			mapper.Add(of.version.WithKind(kind), of.scope)
			mapper.Add(of.version.WithKind(kind+"List"), of.scope)
		}
	}
	statistics := own.WithResource("balancernodestatistics") // singular and plural
	mapper.AddSpecific(own.WithKind("BalancerNodeStatistics"), statistics, statistics, meta.RESTScopeRoot)
	return mapper
}

// cacheOptions limits the caches to the agents' pods in the controller's namespace and to
// the fields that are read. Objects are written by patches, which leave the fields that
// are not cached unchanged.
func cacheOptions(namespace string) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Service{}:            {Transform: slimService},
			&discoveryv1.EndpointSlice{}: {Transform: slimSlice},
			&corev1.Node{}:               {Transform: slimNode},
			&corev1.Pod{}: {
				Namespaces: map[string]cache.Config{namespace: {}},
				Label:      labels.SelectorFromSet(labels.Set{labelName: nameFairlead, labelComponent: componentAgent}),
				Transform:  slimPod,
			},
		},
	}
}

func slimService(object any) (any, error) {
	if svc, is := object.(*corev1.Service); is {
		svc.ManagedFields = nil
		maps.DeleteFunc(svc.Annotations, func(key, _ string) bool { return !spec.HasMeaning(key) })
		svc.Spec.Selector = nil
	}
	return object, nil
}

func slimNode(object any) (any, error) {
	if n, is := object.(*corev1.Node); is {
		n.ObjectMeta = metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion,
			Labels: n.Labels, DeletionTimestamp: n.DeletionTimestamp,
		}
		n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, PodCIDRs: n.Spec.PodCIDRs}
		n.Status = corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: n.Status.NodeInfo.BootID}, Addresses: n.Status.Addresses, Conditions: without(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type != corev1.NodeReady && c.Type != corev1.NodeNetworkUnavailable
		})}
	}
	return object, nil
}

func slimPod(object any) (any, error) {
	if p, is := object.(*corev1.Pod); is {
		p.ManagedFields, p.Annotations = nil, nil
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName}
		p.Status = corev1.PodStatus{Conditions: without(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type != corev1.PodReady })}
	}
	return object, nil
}

// without returns a new slice without the unwanted elements.
func without[T any](all []T, unwanted func(T) bool) []T {
	return slices.Clone(slices.DeleteFunc(all, unwanted))
}

// cacheFiller fills the caches as soon as the API server responds, in followers too, so
// that a new leader can decide at once. A controller is ready when they are filled.
type cacheFiller struct {
	*deps
	// done is closed when all caches are filled.
	done chan struct{}
}

// fill waits for the API server, and fills the caches.
func (f *cacheFiller) fill(ctx context.Context) error {
	err := f.retry(ctx, "reach the API server", func() error {
		return f.live.List(ctx, namespaceList(), client.Limit(1))
	})
	if err != nil {
		return nil //nolint:nilerr // ctx ended
	}
	for _, kind := range kinds() {
		from, kind := f.cacheOf(kind)
		if _, err := from.GetInformer(ctx, kind); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // ctx ended
			}
			return fmt.Errorf("cache of %T: %w", kind, err)
		}
	}
	close(f.done)
	f.log.Info("caches filled")
	return nil
}

// ready is the readiness check.
func (f *cacheFiller) ready(*http.Request) error {
	select {
	case <-f.done:
		return nil
	default:
		return errors.New("caches not filled yet")
	}
}

// kinds are the cached kinds, except kinds that only reports are made of.
func kinds() []client.Object {
	return []client.Object{
		&corev1.Service{}, &discoveryv1.EndpointSlice{}, namespaceMetadata(),
		&v1alpha1.AddressPool{}, &v1alpha1.AssignedAddress{}, &v1alpha1.BGPPeer{}, &v1alpha1.LoadBalancerGroup{}, &v1alpha1.LoadBalancer{},
		ofNodesCluster{&corev1.Node{}}, ofNodesCluster{&corev1.Pod{}}, ofNodesCluster{&corev1.Service{}},
	}
}

// ofNodesCluster is a kind in the nodes' cluster: Nodes, the agents' pods, and Services, of which only the
// cluster IPs matter if it is another cluster.
type ofNodesCluster struct{ client.Object }

// cacheOf returns the cache that has a kind, and the kind.
func (o *deps) cacheOf(kind client.Object) (cache.Cache, client.Object) {
	if n, is := kind.(ofNodesCluster); is {
		return o.nodes, n.Object
	}
	return o.cache, kind
}

// listNodes lists objects of the nodes' cluster, which must not be changed.
func (o *deps) listNodes(ctx context.Context, lists ...client.ObjectList) error {
	for _, l := range lists {
		if err := o.nodes.List(ctx, l, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	return nil
}

// retryDelay is the backoff of retry.
var retryDelay = wait.Backoff{First: 250 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.5}

// retry calls try until it succeeds, and logs its error whenever that changes. It returns
// an error only when ctx ends.
func (o *deps) retry(ctx context.Context, what string, try func() error) error {
	logged := ""
	for failures := 1; ; failures++ {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err.Error() != logged {
			logged = err.Error()
			o.log.Warn("attempt failed, retrying", "action", what, "error", err)
		}
		select {
		case <-time.After(retryDelay.Delay(failures)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
