// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

// news are the objects of a cluster that have changed.
type news struct {
	mu        sync.Mutex
	balancers map[types.NamespacedName]bool
	reported  bool
}

// add adds an object, or one whose deletion was noticed late.
func (n *news) add(o any) {
	if late, is := o.(toolscache.DeletedFinalStateUnknown); is {
		o = late.Obj
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if b, is := o.(*v1alpha1.LoadBalancer); is {
		n.balancers[client.ObjectKeyFromObject(b)] = true
	} else {
		n.reported = true
	}
}

// take returns the objects that have changed since the last call.
func (n *news) take() (balancers map[types.NamespacedName]bool, reported bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	balancers, reported = n.balancers, n.reported
	n.balancers, n.reported = map[types.NamespacedName]bool{}, false
	return balancers, reported
}

// Changed implements Store. The first call has the cache follow the load balancers of all namespaces.
func (s *kubernetesStore) Changed(ctx context.Context) (names []types.NamespacedName, reported bool, err error) {
	if err := s.ready(); err != nil {
		return nil, false, err
	}
	if s.news == nil {
		n := &news{balancers: map[types.NamespacedName]bool{}}
		if err := s.follow(ctx, n); err != nil {
			return nil, false, err
		}
		s.news = n
	}
	balancers, reported := s.news.take()
	for name := range balancers {
		if project, is := strings.CutPrefix(name.Namespace, s.prefix); is {
			names = append(names, types.NamespacedName{Namespace: project, Name: name.Name})
		}
	}
	return names, reported, nil
}

// follow has changes of all objects reach n. The cache would repeat a refused list for ever, without an error.
func (s *kubernetesStore) follow(ctx context.Context, n *news) error {
	err := s.objects.List(ctx, &v1alpha1.LoadBalancerList{}, client.Limit(1))
	if apierrors.IsForbidden(err) {
		return newHTTPError(http.StatusForbidden, "this server has no right to list and watch the load balancers of all namespaces")
	}
	if err != nil {
		return err
	}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: n.add, UpdateFunc: func(_, o any) { n.add(o) }, DeleteFunc: n.add}
	for _, kind := range append([]client.Object{&v1alpha1.LoadBalancer{}}, reportKinds()...) {
		informer, err := s.reports.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("cache of %T: %w", kind, err)
		}
		added, err := informer.AddEventHandler(handler)
		if err != nil {
			return err
		}
		if !toolscache.WaitForCacheSync(ctx.Done(), added.HasSynced) {
			return errors.Join(ctx.Err(), informer.RemoveEventHandler(added))
		}
	}
	return nil
}

// Cached implements Store.
func (s *kubernetesStore) Cached(ctx context.Context, name types.NamespacedName) (*v1alpha1.LoadBalancer, error) {
	b := &v1alpha1.LoadBalancer{}
	err := s.reports.Get(ctx, types.NamespacedName{Namespace: s.namespace(name.Namespace), Name: name.Name}, b)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return b, err
}
