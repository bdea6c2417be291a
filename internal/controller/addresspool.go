// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/controller/ledger"
)

// Reasons of a pool's condition Ready.
const (
	reasonPoolReady = "PoolReady"
	reasonOverlaps  = "PoolOverlaps"
)

// poolReconciler tells the ledger of all pools whenever one changes, and pools how
// much of them is assigned. All pools are one request, as they are one question.
type poolReconciler struct {
	*office
	// told are the specifications of the pools that the ledger was told of, by name.
	told map[string]v1alpha1.AddressPoolSpec
	shown
}

// shown are the names of the pools that there are, for metrics.
type shown struct {
	mu    sync.Mutex
	names []string
}

func (r *poolReconciler) reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var pools v1alpha1.AddressPoolList
	if err := r.List(ctx, &pools); err != nil {
		return reconcile.Result{}, err
	}
	sound, unsound := readPools(pools.Items)
	r.tellLedger(pools.Items, sound)
	var errs []error
	for i := range pools.Items {
		pool := &pools.Items[i]
		if err := r.publish(ctx, pool, poolCondition(pool.Name, sound, unsound[pool.Name])); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", pool.Name, err))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// tellLedger tells what is new, and has everybody's wish looked at anew if anything
// is.
func (r *poolReconciler) tellLedger(pools []v1alpha1.AddressPool, sound []ledger.Pool) {
	now := map[string]v1alpha1.AddressPoolSpec{}
	var names []string
	for _, p := range pools {
		if p.DeletionTimestamp.IsZero() {
			now[p.Name] = p.Spec
			names = append(names, p.Name)
		}
	}
	if r.told != nil && equality.Semantic.DeepEqual(now, r.told) {
		return
	}
	r.told = now
	r.mu.Lock()
	r.names = names
	r.mu.Unlock()
	for _, owner := range r.ledger.SetPools(sound) {
		r.wake(owner)
	}
}

// readPools translates pools; those that can't be understood give no addresses, and
// the errors are by their names. The API server refuses such pools already.
func readPools(pools []v1alpha1.AddressPool) (sound []ledger.Pool, unsound map[string]error) {
	unsound = map[string]error{}
	for _, p := range pools {
		if !p.DeletionTimestamp.IsZero() {
			continue
		}
		read, err := readPool(p)
		if err != nil {
			unsound[p.Name] = err
			continue
		}
		sound = append(sound, read)
	}
	return sound, unsound
}

func readPool(p v1alpha1.AddressPool) (read ledger.Pool, err error) {
	read.Name, read.Priority = p.Name, p.Spec.Priority
	read.Automatic = p.Spec.AutoAssign == nil || *p.Spec.AutoAssign
	for _, text := range p.Spec.Addresses {
		r, err := alloc.ParseRange(string(text))
		if err != nil {
			return ledger.Pool{}, err
		}
		read.Ranges = append(read.Ranges, r)
	}
	if read.Namespaces, err = selectorOf(p.Spec.NamespaceSelector); err != nil {
		return ledger.Pool{}, fmt.Errorf("namespaceSelector: %w", err)
	}
	if read.Objects, err = selectorOf(p.Spec.ServiceSelector); err != nil {
		return ledger.Pool{}, fmt.Errorf("serviceSelector: %w", err)
	}
	return read, nil
}

// selectorOf translates a selector; one that isn't given picks everything.
func selectorOf(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// poolCondition says whether a pool can give addresses, and which others have some of
// the same.
func poolCondition(name string, sound []ledger.Pool, unsound error) metav1.Condition {
	if unsound != nil {
		return condition(v1alpha1.ConditionReady, false, reasonBadSpec, unsound.Error())
	}
	at := slices.IndexFunc(sound, func(p ledger.Pool) bool { return p.Name == name })
	if at < 0 {
		return condition(v1alpha1.ConditionReady, false, reasonBadSpec, "being deleted")
	}
	var overlaps []string
	for i, other := range sound {
		if i != at && overlap(sound[at].Ranges, other.Ranges) {
			overlaps = append(overlaps, other.Name)
		}
	}
	if len(overlaps) == 0 {
		return condition(v1alpha1.ConditionReady, true, reasonPoolReady, "")
	}
	slices.Sort(overlaps)
	return condition(v1alpha1.ConditionReady, true, reasonOverlaps,
		"has addresses that are also in "+strings.Join(overlaps, ", "))
}

func overlap(a, b []alloc.Range) bool {
	for _, r := range a {
		if slices.ContainsFunc(b, r.Overlaps) {
			return true
		}
	}
	return false
}

// publish writes a pool's status, if it is new.
func (r *poolReconciler) publish(ctx context.Context, pool *v1alpha1.AddressPool, c metav1.Condition) error {
	base := pool.DeepCopy()
	usage := r.ledger.Usage(pool.Name)
	assigned := usage.IPv4.Assigned + usage.IPv6.Assigned
	pool.Status.Assigned = int64(assigned)
	pool.Status.Available = available(usage)
	c.ObservedGeneration = pool.Generation
	set(&pool.Status.Conditions, c)
	if equality.Semantic.DeepEqual(pool.Status, base.Status) {
		return nil
	}
	_, err := r.patchStatus(ctx, pool, base)
	return client.IgnoreNotFound(err)
}

// maxAvailable is the largest integer that every reader of JSON knows exactly.
const maxAvailable = 1 << 53

// available returns how many addresses have no owner, at most maxAvailable.
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
