// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/spec"
)

// Reasons of a pool's condition Ready.
const (
	reasonPoolReady     = "PoolReady"
	reasonOverlaps      = "PoolOverlaps"
	reasonNotAggregated = "NotAggregated"
	reasonInUse         = "AddressesInUse"
	reasonConflict      = "AddressConflict"
)

// poolReconciler updates allocations when a pool changes, and publishes in the statuses
// how many addresses are assigned. All pools are one request.
type poolReconciler struct {
	*deps
	// specs are the specifications last passed to allocations, by name.
	specs map[string]v1alpha1.AddressPoolSpec
}

func (r *poolReconciler) reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var pools v1alpha1.AddressPoolList
	if err := r.List(ctx, &pools); err != nil {
		return reconcile.Result{}, err
	}
	var objects []served
	if slices.ContainsFunc(pools.Items, func(p v1alpha1.AddressPool) bool { return aggregates(&p) }) {
		var err error
		if objects, err = r.listServed(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	valid, invalid := parsePools(pools.Items)
	r.updatePools(pools.Items, valid)
	over, next := r.allocations.Expired()
	var errs []error
	for _, object := range over {
		if err := r.deleteAddress(ctx, object); err != nil {
			errs = append(errs, fmt.Errorf("address %s: %w", object.Spec.Address, err))
		}
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		c := r.poolCondition(pool.Name, valid, invalid[pool.Name])
		if wrong := notAggregated(pool, objects); len(wrong) > 0 && c.Status == metav1.ConditionTrue {
			c = condition(v1alpha1.ConditionReady, false, reasonNotAggregated, named(wrong))
		}
		if err := r.publish(ctx, pool, c); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", pool.Name, err))
		}
	}
	return reconcile.Result{RequeueAfter: next}, errors.Join(errs...)
}

// notAggregated says which CIDRs of a pool nodes announce as host routes, and why.
func notAggregated(pool *v1alpha1.AddressPool, objects []served) (texts []string) {
	if !aggregates(pool) {
		return nil
	}
	for _, text := range pool.Spec.Addresses {
		prefix, err := netip.ParsePrefix(string(text))
		if err != nil {
			continue // a range
		}
		why := spec.NotAggregated(prefix, func(yield func(string, []netip.Addr) bool) {
			for i := range objects {
				if o := &objects[i]; !o.tagged && !yield(o.group, o.addresses) {
					return
				}
			}
		})
		if why != "" {
			texts = append(texts, why)
		}
	}
	return texts
}

func aggregates(pool *v1alpha1.AddressPool) bool {
	return pool.Spec.Announce != nil && pool.Spec.Announce.Aggregate
}

// poolsChanged reports whether an update changes a pool, or the group or addresses of an object.
func poolsChanged(before, now client.Object) bool {
	switch o := now.(type) {
	case *corev1.Service:
		old, _ := servedService(before.(*corev1.Service))
		served, _ := servedService(o)
		return old.group != served.group || !slices.Equal(old.addresses, served.addresses)
	case *v1alpha1.LoadBalancer:
		old := before.(*v1alpha1.LoadBalancer)
		return old.Status.Group != o.Status.Group || old.Status.Address != o.Status.Address
	}
	return true
}

// updatePools passes changed pools to allocations, and reconciles all owners then.
func (r *poolReconciler) updatePools(pools []v1alpha1.AddressPool, valid []addressPool) {
	now := map[string]v1alpha1.AddressPoolSpec{}
	for _, p := range pools {
		if p.DeletionTimestamp.IsZero() {
			now[p.Name] = p.Spec
		}
	}
	if r.specs != nil && equality.Semantic.DeepEqual(now, r.specs) {
		return
	}
	r.specs = now
	for _, owner := range r.allocations.SetPools(valid) {
		r.enqueue(owner)
	}
}

// parsePools translates pools. The errors of invalid ones, which give no addresses, are by
// name; usually the API server rejects such pools.
func parsePools(pools []v1alpha1.AddressPool) (valid []addressPool, invalid map[string]error) {
	invalid = map[string]error{}
	for _, p := range pools {
		if !p.DeletionTimestamp.IsZero() {
			continue
		}
		if read, err := parsePool(p); err != nil {
			invalid[p.Name] = err
		} else {
			valid = append(valid, read)
		}
	}
	return valid, invalid
}

func parsePool(p v1alpha1.AddressPool) (read addressPool, err error) {
	read.Name, read.Priority = p.Name, p.Spec.Priority
	read.Automatic = p.Spec.AutoAssign == nil || *p.Spec.AutoAssign
	read.External = p.Spec.External
	read.RetainFor = spec.RetainFor(&p)
	if read.Ranges, err = spec.PoolRanges(&p); err != nil {
		return addressPool{}, err
	}
	if read.Namespaces, err = spec.Selector(p.Spec.NamespaceSelector); err != nil {
		return addressPool{}, fmt.Errorf("namespaceSelector: %w", err)
	}
	if read.Objects, err = spec.Selector(p.Spec.ServiceSelector); err != nil {
		return addressPool{}, fmt.Errorf("serviceSelector: %w", err)
	}
	return read, nil
}

// poolCondition says whether a pool is valid, which of its addresses are of nodes or BGP peers, and which
// other pools overlap it.
func (r *poolReconciler) poolCondition(name string, valid []addressPool, invalid error) metav1.Condition {
	if invalid != nil {
		return condition(v1alpha1.ConditionReady, false, reasonBadSpec, invalid.Error())
	}
	at := slices.IndexFunc(valid, func(p addressPool) bool { return p.Name == name })
	if at < 0 {
		return condition(v1alpha1.ConditionReady, false, reasonBadSpec, "being deleted")
	}
	var overlaps []string
	within := func(r netipx.IPRange) bool { return slices.ContainsFunc(valid[at].Ranges, r.Overlaps) }
	for i, other := range valid {
		if i != at && slices.ContainsFunc(other.Ranges, within) {
			overlaps = append(overlaps, other.Name)
		}
	}
	reason, texts := reasonPoolReady, []string(nil)
	if len(overlaps) > 0 {
		slices.Sort(overlaps)
		reason, texts = reasonOverlaps, []string{"overlaps " + strings.Join(overlaps, ", ")}
	}
	assigned, free := r.allocations.HostsIn(valid[at].Ranges)
	if len(free) > 0 {
		reason, texts = reasonInUse, append([]string{"not assigned: " + named(free)}, texts...)
	}
	if len(assigned) > 0 {
		reason, texts = reasonConflict, append([]string{named(assigned)}, texts...)
	}
	return condition(v1alpha1.ConditionReady, len(assigned) == 0, reason, strings.Join(texts, "; "))
}

// addressReconciler passes the objects of addresses to allocations.
type addressReconciler struct{ *deps }

func (r addressReconciler) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var object v1alpha1.AssignedAddress
	err := r.Get(ctx, request.NamespacedName, &object)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	known := r.allocations.objects.get(request.Name)
	if err != nil && known == nil || err == nil && known != nil && !isNewer(object.ResourceVersion, known.ResourceVersion) {
		return reconcile.Result{}, nil // written by this controller
	}
	return reconcile.Result{}, r.readAddress(ctx, request.Name) // the cache may be older
}

// publish writes a pool's status if it has changed.
func (r *poolReconciler) publish(ctx context.Context, pool *v1alpha1.AddressPool, c metav1.Condition) error {
	base := pool.DeepCopy()
	usage := r.allocations.Usage(pool.Name)
	assigned := usage.IPv4.Assigned + usage.IPv6.Assigned
	pool.Status.Assigned = int64(assigned)
	pool.Status.Available = available(usage)
	c.ObservedGeneration = pool.Generation
	set(&pool.Status.Conditions, c)
	_, err := r.patchStatus(ctx, pool, base)
	return client.IgnoreNotFound(err)
}

// maxAvailable is the largest integer that all JSON parsers read exactly.
const maxAvailable = 1 << 53

// available returns the number of free addresses, at most maxAvailable.
func available(u alloc.Usage) int64 {
	var sum uint64
	for _, c := range []alloc.Count{u.IPv4, u.IPv6} {
		if c.Size == math.MaxUint64 {
			return maxAvailable
		}
		sum += min(c.Size-min(c.Assigned, c.Size), maxAvailable)
	}
	return int64(min(sum, maxAvailable))
}

// namespaceReconciler passes the labels of namespaces, which pools and groups select by,
// to allocations.
type namespaceReconciler struct{ *deps }

func (r namespaceReconciler) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := namespaceMetadata()
	err := r.Get(ctx, request.NamespacedName, namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	for _, owner := range r.allocations.SetNamespace(request.Name, namespace.Labels, err == nil) {
		r.enqueue(owner)
	}
	r.enqueueCounts()
	return reconcile.Result{}, nil
}

// namespaceMetadata returns a namespace without specification and status.
func namespaceMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}

// namespaceList returns a list of namespaces without specification and status.
func namespaceList() *metav1.PartialObjectMetadataList {
	return &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
}
