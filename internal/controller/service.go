// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/spec"
)

// serviceReconciler assigns addresses to Services, and publishes their groups.
//
// It sets no finalizer, which would block the deletion of namespaces after Fairlead was removed: the
// objects of addresses say whose they are. Agents see the deletion of a Service before the next owner
// in the same watch.
type serviceReconciler struct{ *deps }

func (r serviceReconciler) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var svc corev1.Service
	err := r.Get(ctx, request.NamespacedName, &svc)
	switch {
	case apierrors.IsNotFound(err):
		owner := alloc.Owner{Kind: kindService, Namespace: request.Namespace, Name: request.Name}
		r.allocations.ForgetForeign(owner)
		r.allocations.SetLeft(owner, false)
		return r.forget(ctx, kindService, request.NamespacedName, &svc)
	case err != nil:
		return reconcile.Result{}, err
	case r.isOurs(&svc) && r.options.Nodes != nil:
		return reconcile.Result{}, r.refuse(ctx, &svc)
	case r.isOurs(&svc):
		if left, err := r.yield(ctx, &svc); left || err != nil {
			return reconcile.Result{}, err
		}
		return r.serve(ctx, &svc)
	case isMarked(&svc):
		return reconcile.Result{}, r.withdraw(ctx, &svc)
	case r.allocations.Has(ownerOf(kindService, &svc)) && (!isForeign(&svc) || !r.foreign(&svc).Claimable):
		return r.disown(ctx, &svc)
	}
	return r.claim(ctx, &svc)
}

// serve requests addresses for a Service, and publishes the result.
func (r serviceReconciler) serve(ctx context.Context, svc *corev1.Service) (reconcile.Result, error) {
	before := slices.Clone(svc.Status.Conditions)
	result, retry, err := r.allocate(ctx, service{svc})
	if err != nil || retry > 0 {
		return reconcile.Result{RequeueAfter: retry}, err
	}
	conditions := append([]metav1.Condition{allocatedCondition(v1alpha1.ConditionServiceAllocated, result)}, r.decided(svc, result)...)
	base := svc.DeepCopy()
	svc.Status.LoadBalancer.Ingress = ingressOf(svc.Status.LoadBalancer.Ingress, result.Addresses)
	for _, c := range conditions {
		set(&svc.Status.Conditions, c)
	}
	conditions = append(conditions, r.setFindings(ownerOf(kindService, svc), &svc.Status.Conditions, spec.ServedBy(svc) != "")...)
	r.written.attempt(ownerOf(kindService, svc), result.Addresses)
	if err := r.publish(ctx, svc, base, before, conditions); err != nil {
		return reconcile.Result{}, err
	}
	r.written.set(ownerOf(kindService, svc), result.Addresses)
	retry, err = r.leave(ctx, service{svc})
	return reconcile.Result{RequeueAfter: retry}, err
}

// decided returns the conditions Accepted and Served, as far as they are decided: no condition is
// published that changes a moment later.
func (r serviceReconciler) decided(svc *corev1.Service, result allocation) (conditions []metav1.Condition) {
	owner := ownerOf(kindService, svc)
	group, decided := r.groups.of(owner)
	if len(result.Addresses) == 0 {
		group, decided = "", true
	}
	bounded, known := r.quotas.of(owner, group, result.Addresses)
	decided = decided && known
	kind := v1alpha1.ConditionServiceAccepted
	_, err := serviceRequest(svc)
	unread := spec.Unread(svc)
	switch {
	case err != nil:
		conditions = append(conditions, condition(kind, false, reasonOf(err), err.Error()))
	case decided && bounded.raised != "":
		conditions = append(conditions, condition(kind, false, reasonIntervalRaised, bounded.raised))
	case decided && unread != "":
		conditions = append(conditions, condition(kind, false, reasonUnread, unread))
	case decided:
		conditions = append(conditions, condition(kind, true, reasonAccepted, ""))
	}
	if decided {
		conditions = append(conditions, servedConditions(svc, result, group, bounded.refused)...)
	}
	return conditions
}

// withdraw removes everything from a Service that isn't ours any more. The addresses in its
// status are ours only if it has our condition: both are written together.
func (r serviceReconciler) withdraw(ctx context.Context, svc *corev1.Service) error {
	base := svc.DeepCopy()
	clearStatus(svc)
	meta.RemoveStatusCondition(&svc.Status.Conditions, v1alpha1.ConditionServiceAllocated)
	if _, err := r.patchStatus(ctx, svc, base); err != nil {
		return err
	}
	return r.release(ctx, ownerOf(kindService, svc))
}

// clearStatus removes all but the condition about addresses from the status of a Service.
func clearStatus(svc *corev1.Service) {
	svc.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	meta.RemoveStatusCondition(&svc.Status.Conditions, v1alpha1.ConditionServiceAccepted)
	meta.RemoveStatusCondition(&svc.Status.Conditions, v1alpha1.ConditionServiceServed)
	removeFindings(&svc.Status.Conditions, true)
}

// reasonNodesApart is why a Service gets no address if the balancers are in another cluster.
const reasonNodesApart = "NodesInOtherCluster"

// refuse says that a Service isn't served because its endpoints are not in the balancers' cluster.
// It removes the addresses and conditions of an earlier controller.
func (r serviceReconciler) refuse(ctx context.Context, svc *corev1.Service) error {
	before, base := slices.Clone(svc.Status.Conditions), svc.DeepCopy()
	clearStatus(svc)
	c := condition(v1alpha1.ConditionServiceAllocated, false, reasonNodesApart,
		"the balancers are nodes of another cluster, which has no endpoints of this Service: create a LoadBalancer")
	set(&svc.Status.Conditions, c)
	if err := r.publish(ctx, svc, base, before, []metav1.Condition{c}); err != nil {
		return err
	}
	if owner := ownerOf(kindService, svc); r.allocations.Has(owner) {
		return r.release(ctx, owner)
	}
	return nil
}

// disown releases the addresses of a Service without any of our data, if the API server
// confirms that: the cache may be older than allocations.
func (r serviceReconciler) disown(ctx context.Context, svc *corev1.Service) (reconcile.Result, error) {
	var now corev1.Service
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(svc), &now); err != nil {
		return reconcile.Result{}, err
	}
	if r.isOurs(&now) || isMarked(&now) {
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	}
	return reconcile.Result{}, r.release(ctx, ownerOf(kindService, svc))
}

// servedConditions says which group serves a Service that has, or once had, addresses, or why it
// is refused. Agents read the group there (spec.ServedBy).
func servedConditions(svc *corev1.Service, g allocation, group string, refused spec.Refusal) []metav1.Condition {
	kind := v1alpha1.ConditionServiceServed
	switch {
	case len(g.Addresses) == 0 && meta.FindStatusCondition(svc.Status.Conditions, kind) == nil:
		return nil
	case len(g.Addresses) == 0:
		return []metav1.Condition{condition(kind, false, reasonNoAddress, "")}
	case group == "":
		return []metav1.Condition{condition(kind, false, reasonNoGroup, spec.NoGroup)}
	case refused.Reason != "":
		return []metav1.Condition{condition(kind, false, refused.Reason, refused.Message)}
	}
	return []metav1.Condition{condition(kind, true, reasonServed, group)}
}

// ingressOf returns the ingress points of addresses, or shown if they are equal: an absent mode
// is VIP.
func ingressOf(shown []corev1.LoadBalancerIngress, addresses []netip.Addr) []corev1.LoadBalancerIngress {
	var ingress []corev1.LoadBalancerIngress
	for _, a := range addresses {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: a.String(), IPMode: new(corev1.LoadBalancerIPModeVIP)})
	}
	same := func(a, b corev1.LoadBalancerIngress) bool {
		if a.IPMode == nil {
			a.IPMode = b.IPMode
		}
		return equality.Semantic.DeepEqual(a, b)
	}
	if slices.EqualFunc(shown, ingress, same) {
		return shown
	}
	return ingress
}
