// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
)

// balancerReconciler assigns addresses to LoadBalancers, and publishes their groups and which
// parts can be served.
type balancerReconciler struct{ *deps }

func (r balancerReconciler) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var b v1alpha1.LoadBalancer
	err := r.Get(ctx, request.NamespacedName, &b)
	switch {
	case apierrors.IsNotFound(err):
		return r.forget(ctx, kindLoadBalancer, request.NamespacedName, &b)
	case err != nil:
		return reconcile.Result{}, err
	}
	if !r.policies.known() {
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	}
	before := slices.Clone(b.Status.Conditions)
	result, retry, err := r.allocate(ctx, balancer{&b})
	if err != nil || retry > 0 {
		return reconcile.Result{RequeueAfter: retry}, err
	}
	base := b.DeepCopy()
	allocated := r.decide(&b, result)
	owner := ownerOf(kindLoadBalancer, &b)
	found := r.setFindings(owner, &b.Status.Conditions, b.Status.Group != "")
	if r.findings.await(owner, b.Generation) && sameButGeneration(&base.Status, &b.Status) {
		return reconcile.Result{}, nil // one write has this condition and the node reports' conditions
	}
	if err := r.publish(ctx, &b, base, before, append(found, allocated)); err != nil {
		return reconcile.Result{}, err
	}
	retry, err = r.leave(ctx, balancer{&b})
	return reconcile.Result{RequeueAfter: retry}, err
}

// sameButGeneration reports whether two statuses differ at most in the generation of conditions.
func sameButGeneration(before, now *v1alpha1.LoadBalancerStatus) bool {
	now = now.DeepCopy()
	for i := range now.Conditions {
		if c := meta.FindStatusCondition(before.Conditions, now.Conditions[i].Type); c != nil {
			now.Conditions[i].ObservedGeneration = c.ObservedGeneration
		}
	}
	return equality.Semantic.DeepEqual(before, now)
}

// balancer is a LoadBalancer as an owner of addresses.
type balancer struct{ *v1alpha1.LoadBalancer }

func (b balancer) object() client.Object { return b.LoadBalancer }

func (b balancer) shown() []netip.Addr {
	if a, err := netip.ParseAddr(b.Status.Address); err == nil {
		return []netip.Addr{a}
	}
	return nil
}

func (b balancer) hide([]netip.Addr) { b.Status.Address = "" }

func (b balancer) conditions() (all *[]metav1.Condition, allocated string) {
	return &b.Status.Conditions, v1alpha1.ConditionAllocated
}

func (b balancer) group() string { return b.Status.Group }

// request returns the request of a LoadBalancer. Usually the API server rejects an invalid
// specification.
func (b balancer) request() addressRequest {
	request, segment, err := spec.AddressRequest(b.LoadBalancer)
	w := addressRequest{
		Request: request, Segment: segment,
		Version: b.ResourceVersion,
		Created: b.CreationTimestamp.Time,
		Labels:  maps.Clone(b.Labels),
	}
	if err != nil {
		return w.reject(reasonBadSpec, err)
	}
	return w
}

// Reasons of a Service's ConditionServiceServed, which a LoadBalancer's condition Ready has, too.
const (
	reasonServed    = "Served"
	reasonNoAddress = "NoAddress"
	reasonNoGroup   = "NoGroup"
)

// decide sets a LoadBalancer's status without the parts from node reports, and returns its
// condition about addresses. Fields that aren't decided yet keep their values.
func (r balancerReconciler) decide(b *v1alpha1.LoadBalancer, g allocation) metav1.Condition {
	d := spec.Decision{Address: cmp.Or(g.Addresses...), Allocated: allocatedCondition(v1alpha1.ConditionAllocated, g)}
	owner := ownerOf(kindLoadBalancer, b)
	group, decided := r.groups.of(owner)
	if len(g.Addresses) == 0 {
		group, decided = "", true
	}
	bounded, known := r.quotas.of(owner, group, g.Addresses)
	if !decided || !known {
		b.Status.Address, d.Allocated.ObservedGeneration = list(g.Addresses), b.Generation
		set(&b.Status.Conditions, d.Allocated)
		return d.Allocated
	}
	d.Group, d.Refused, d.Raised = group, bounded.refused, bounded.raised
	d.Policy, d.Networks = r.policies.of(group)
	d.Write(b)
	return d.Allocated
}
