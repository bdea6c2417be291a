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
	return reconcile.Result{}, r.publish(ctx, &b, base, before, append(found, allocated))
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

// Reasons of a LoadBalancer's condition Ready, and of a Service's ConditionServiceServed.
const (
	reasonServed      = "Served"
	reasonNoAddress   = "NoAddress"
	reasonNoGroup     = "NoGroup"
	reasonNotAccepted = "NotAccepted"
)

// noGroupMessage is the message of conditions of objects without group.
const noGroupMessage = "no group with nodes matches: see the condition Ready of LoadBalancerGroups"

// decide sets a LoadBalancer's status without the parts from node reports, and returns its
// condition about addresses. Fields that aren't decided yet keep their values.
func (r balancerReconciler) decide(b *v1alpha1.LoadBalancer, g allocation) metav1.Condition {
	b.Status.Address = list(g.Addresses)
	owner := ownerOf(kindLoadBalancer, b)
	group, decided := r.groups.of(owner)
	if b.Status.Address == "" {
		group, decided = "", true
	}
	if decided {
		policy, networks := r.policies.of(group)
		b.Status.Listeners, b.Status.Pools = spec.PartStatuses(b, cmp.Or(g.Addresses...), policy, networks)
	}
	conditions := []metav1.Condition{allocatedCondition(v1alpha1.ConditionAllocated, g)}
	if bounded, known := r.quotas.of(owner, group, g.Addresses); decided && known {
		if b.Status.Group = group; bounded.refused != "" {
			b.Status.Group = "" // nodes obey it
		}
		conditions = append(conditions, balancerReady(b, group, bounded))
	}
	for i := range conditions {
		conditions[i].ObservedGeneration = b.Generation
		set(&b.Status.Conditions, conditions[i])
	}
	return conditions[0]
}

// balancerReady says whether all parts of a LoadBalancer are served. The health of members
// is known only to agents.
func balancerReady(b *v1alpha1.LoadBalancer, group string, bounded bounded) metav1.Condition {
	switch {
	case b.Status.Address == "":
		return condition(v1alpha1.ConditionReady, false, reasonNoAddress, "")
	case group == "":
		return condition(v1alpha1.ConditionReady, false, reasonNoGroup, noGroupMessage)
	case bounded.refused != "":
		return condition(v1alpha1.ConditionReady, false, reasonQuotaExceeded, bounded.refused)
	}
	if why := spec.NotAccepted(&b.Status); why != "" {
		return condition(v1alpha1.ConditionReady, false, reasonNotAccepted, why)
	}
	message := "by group " + group
	if bounded.raised != "" {
		message += "; " + bounded.raised
	}
	return condition(v1alpha1.ConditionReady, true, reasonServed, message)
}
