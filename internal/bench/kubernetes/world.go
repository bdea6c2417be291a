// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

// world is what is in the cluster for the measurement.
type world struct {
	client client.WithWatch
	// name is that of the namespace, and of all that is in none.
	name     string
	services int
	// slices are the EndpointSlices as the API server has them, by the Service's number.
	slices []*discovery.EndpointSlice
}

// writers is how many objects are written at the same time.
const writers = 16

func newWorld(config *rest.Config, name string, services int) (*world, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, err
		}
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: kinds})
	if err != nil {
		return nil, err
	}
	return &world{client: c, name: name, services: services, slices: make([]*discovery.EndpointSlice, services)}, nil
}

// check returns an error if the cluster is not one that can be measured in: the kinds
// are not there, or others would take part.
func (w *world) check(ctx context.Context) error {
	var groups v1alpha1.LoadBalancerGroupList
	err := w.client.List(ctx, &groups)
	switch {
	case apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return errors.New("cluster: it has no kinds of Fairlead's: apply deploy/helm/fairlead/crds")
	case err != nil:
		return fmt.Errorf("cluster: %w", err)
	case len(groups.Items) > 0:
		return fmt.Errorf("cluster: it has the LoadBalancerGroup %s: measure in a cluster that Fairlead doesn't serve", groups.Items[0].Name)
	}
	return nil
}

// fill writes all objects.
func (w *world) fill(ctx context.Context) error {
	for _, obj := range w.setting() {
		status := obj.DeepCopyObject().(client.Object)
		if err := w.client.Create(ctx, obj); err != nil {
			return fmt.Errorf("%T %s: %w", obj, obj.GetName(), err)
		}
		switch status.(type) {
		case *core.Node, *core.Pod:
			status.SetResourceVersion(obj.GetResourceVersion())
			status.SetUID(obj.GetUID())
			if err := w.client.Status().Update(ctx, status); err != nil {
				return fmt.Errorf("%T %s: status: %w", obj, obj.GetName(), err)
			}
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for n := range w.services {
		group.Go(func() error {
			w.slices[n] = w.slice(n)
			return errors.Join(w.client.Create(ctx, w.service(n)), w.client.Create(ctx, w.slices[n]))
		})
	}
	return group.Wait()
}

// awaitAddresses waits until every Service has an address, and a group that serves
// it, and returns the addresses by the Services' numbers. What alive returns ends
// the waiting.
func (w *world) awaitAddresses(ctx context.Context, alive func() error) ([]netip.Addr, error) {
	events, err := w.client.Watch(ctx, &core.ServiceList{}, client.InNamespace(w.name))
	if err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	defer events.Stop()
	addresses, missing := make([]netip.Addr, w.services), w.services
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for missing > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-look.C:
			if err := alive(); err != nil {
				return nil, err
			}
		case e, open := <-events.ResultChan():
			svc, is := e.Object.(*core.Service)
			if !open || !is {
				return nil, fmt.Errorf("services: the watch ended with %d of %d without an address: %v", missing, w.services, e.Object)
			}
			n, address := assigned(svc)
			if address.IsValid() && !addresses[n].IsValid() {
				addresses[n] = address
				missing--
			}
		}
	}
	return addresses, nil
}

// assigned is the number of a Service, and its address if it has one and a group.
func assigned(svc *core.Service) (n int, address netip.Addr) {
	if _, err := fmt.Sscanf(svc.Name, serviceName, &n); err != nil || svc.Annotations[v1alpha1.AnnotationGroup] == "" {
		return n, address
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			return n, a
		}
	}
	return n, address
}

// setReady writes whether an endpoint of the nth Service is ready.
func (w *world) setReady(ctx context.Context, n, endpoint int, ready bool) error {
	s := w.slices[n]
	s.Endpoints[endpoint].Conditions.Ready = &ready
	if err := w.client.Update(ctx, s); err != nil {
		return fmt.Errorf("endpointslice %s: %w", s.Name, err)
	}
	return nil
}

// remove takes everything away. Without Kubernetes' own controllers the empty
// namespace stays, as one that is being deleted.
func (w *world) remove(ctx context.Context) error {
	var errs []error
	for _, kind := range []client.Object{&core.Service{}, &discovery.EndpointSlice{}, &core.Pod{}} {
		err := w.client.DeleteAllOf(ctx, kind, client.InNamespace(w.name), client.GracePeriodSeconds(0))
		errs = append(errs, client.IgnoreNotFound(err))
	}
	for _, obj := range w.setting() {
		errs = append(errs, client.IgnoreNotFound(w.client.Delete(ctx, obj, client.GracePeriodSeconds(0))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cluster: not all that was written is gone: %w", err)
	}
	return nil
}

// labels mark what belongs to the measurement, by which the group and the pool pick.
func (w *world) labels() map[string]string { return map[string]string{"fairlead.io/bench": w.name} }

func (w *world) selector() meta.LabelSelector { return meta.LabelSelector{MatchLabels: w.labels()} }
