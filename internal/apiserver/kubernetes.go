// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/semaphore"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

// kubernetesStore keeps LoadBalancers in a Kubernetes cluster, one namespace for each project. They
// are read at the API server, so that a client sees its own writes through all servers. Reports of
// nodes are read from a cache: there are few of them, and clients poll.
type kubernetesStore struct {
	objects client.Client
	// texts reads LoadBalancers without decoding them, and reads has an entry for each that is being
	// read.
	texts   rest.Interface
	reads   *semaphore.Weighted
	reports cache.Cache
	// prefix and the name of a project are the name of its namespace.
	prefix string
	// synced is closed once reports has all reports.
	synced chan struct{}
	// news has the changes since the last call of Changed; nil before the first one.
	news *news
	// leaseNamespace has the Leases of holders; leases are those that this server has seen, by client.
	leaseNamespace string
	holding        sync.Mutex
	leases         map[string]lease
}

// maxReads is how many LoadBalancers are read at once: each may have as much as etcd stores.
const maxReads = 2 * maxPiece

// newKubernetesStore returns a store that has to be run.
func newKubernetesStore(config *rest.Config, prefix, leaseNamespace string) (*kubernetesStore, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // clients have limits, and so has the API server
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	// A static mapping, so that the API server may be unreachable at the start.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion().WithKind("LoadBalancer"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	for _, kind := range []string{"LoadBalancerGroup", "BalancerNode"} {
		mapper.Add(v1alpha1.GroupVersion().WithKind(kind), meta.RESTScopeRoot)
	}
	statistics := v1alpha1.GroupVersion().WithResource("balancernodestatistics") // singular and plural
	mapper.AddSpecific(v1alpha1.GroupVersion().WithKind("BalancerNodeStatistics"), statistics, statistics, meta.RESTScopeRoot)
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	raw := dynamic.ConfigFor(config)
	raw.APIPath, raw.GroupVersion = "/apis", new(v1alpha1.GroupVersion())
	texts, err := rest.RESTClientFor(raw)
	if err != nil {
		return nil, err
	}
	reports, err := cache.New(config, cache.Options{Scheme: scheme, Mapper: mapper, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return nil, err
	}
	return &kubernetesStore{
		objects: client.WithFieldValidation(c, metav1.FieldValidationStrict), texts: texts, reads: semaphore.NewWeighted(maxReads),
		reports: reports, prefix: prefix, synced: make(chan struct{}), leaseNamespace: leaseNamespace, leases: map[string]lease{},
	}, nil
}

// reportKinds are the kinds from which statuses are made, apart from the load balancers.
func reportKinds() []client.Object {
	return []client.Object{&v1alpha1.LoadBalancerGroup{}, &v1alpha1.BalancerNode{}, &v1alpha1.BalancerNodeStatistics{}}
}

// run fills the cache until ctx ends.
func (s *kubernetesStore) run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.reports.Start(ctx) }()
	err := s.sync(ctx)
	return errors.Join(err, <-ended)
}

// sync returns when the cache has all reports, or ctx ends.
func (s *kubernetesStore) sync(ctx context.Context) error {
	for _, kind := range reportKinds() {
		if _, err := s.reports.GetInformer(ctx, kind); err != nil && ctx.Err() == nil {
			return fmt.Errorf("cache of %T: %w", kind, err)
		}
	}
	if s.reports.WaitForCacheSync(ctx) && ctx.Err() == nil {
		close(s.synced)
	}
	return nil
}

// ready returns why the store can't answer all requests yet.
func (s *kubernetesStore) ready() error {
	select {
	case <-s.synced:
		return nil
	default:
		return errors.New("reports of nodes not read yet")
	}
}

// namespace returns the namespace of a project.
func (s *kubernetesStore) namespace(project string) string { return s.prefix + project }

func (s *kubernetesStore) Get(ctx context.Context, project, name string) ([]byte, error) {
	return s.read(ctx, s.texts.Get().Namespace(s.namespace(project)).Resource(balancers.Resource).Name(name), 1)
}

// read reads up to n LoadBalancers.
func (s *kubernetesStore) read(ctx context.Context, request *rest.Request, n int64) ([]byte, error) {
	if err := s.reads.Acquire(ctx, n); err != nil {
		return nil, err
	}
	defer s.reads.Release(n)
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// List implements Store. Whatever the limit is, it reads no more than maxPiece.
func (s *kubernetesStore) List(ctx context.Context, project string, page Page) (*List, error) {
	n := min(page.Limit, maxPiece)
	text, err := s.read(ctx, s.texts.Get().Namespace(s.namespace(project)).Resource(balancers.Resource).
		Param("limit", strconv.FormatInt(n, 10)).Param("continue", page.Continue).Param("labelSelector", page.Labels.String()), n)
	if err != nil {
		return nil, err
	}
	var list struct {
		Metadata struct{ Continue string }
		Items    []json.RawMessage
	}
	err = json.Unmarshal(text, &list)
	return &List{Items: list.Items, Continue: list.Metadata.Continue, Size: len(text)}, err
}

func (s *kubernetesStore) Create(ctx context.Context, project string, object *unstructured.Unstructured) error {
	object.SetNamespace(s.namespace(project))
	return s.objects.Create(ctx, object)
}

// Update implements Store. Unless a client applies the object, Kubernetes doesn't keep who set which
// field any more: that is much of its API server's work for a write.
func (s *kubernetesStore) Update(ctx context.Context, project string, object *unstructured.Unstructured) error {
	object.SetNamespace(s.namespace(project))
	applied := func(e metav1.ManagedFieldsEntry) bool { return e.Operation == metav1.ManagedFieldsOperationApply }
	if !slices.ContainsFunc(object.GetManagedFields(), applied) {
		object.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
	}
	return s.objects.Update(ctx, object)
}

func (s *kubernetesStore) Delete(ctx context.Context, project string, object *unstructured.Unstructured) error {
	object.SetNamespace(s.namespace(project))
	return s.objects.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID()), ResourceVersion: new(object.GetResourceVersion())})
}

func (s *kubernetesStore) Reports(ctx context.Context, group string) (map[string]*v1alpha1.BalancerNodeStatus, error) {
	all := map[string]*v1alpha1.BalancerNodeStatus{}
	nodes, err := s.nodes(ctx, group)
	for _, n := range nodes {
		if !n.Ready {
			continue // its report may be old
		}
		var report v1alpha1.BalancerNode
		if all[n.Name], err = reportOf(ctx, s.reports, n.Name, &report, &report.Status); err != nil {
			return nil, err
		}
	}
	return all, err
}

// Statistics implements Store. Counters of a node count also while it isn't ready.
func (s *kubernetesStore) Statistics(ctx context.Context, group string) (map[string]*v1alpha1.BalancerNodeStatisticsStatus, error) {
	all := map[string]*v1alpha1.BalancerNodeStatisticsStatus{}
	nodes, err := s.nodes(ctx, group)
	for _, n := range nodes {
		var report v1alpha1.BalancerNodeStatistics
		if all[n.Name], err = reportOf(ctx, s.reports, n.Name, &report, &report.Status); err != nil {
			return nil, err
		}
	}
	return all, err
}

// nodes returns the nodes of a group; none if there is no such group.
func (s *kubernetesStore) nodes(ctx context.Context, group string) ([]v1alpha1.GroupNode, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	var g v1alpha1.LoadBalancerGroup
	err := s.reports.Get(ctx, client.ObjectKey{Name: group}, &g)
	return g.Status.Nodes, client.IgnoreNotFound(err)
}

// reportOf reads the report of a node, and returns the status in it; nil if there is no report.
func reportOf[S any](ctx context.Context, reports client.Reader, node string, report client.Object, status *S) (*S, error) {
	if err := reports.Get(ctx, client.ObjectKey{Name: node}, report); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return status, nil
}

// newObject returns a LoadBalancer without a specification.
func newObject(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("LoadBalancer"))
	object.SetName(name)
	return object
}
