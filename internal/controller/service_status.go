// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/controller/ledger"
)

// serviceConditions are those of a Service with what it got, without servedConditions.
func serviceConditions(g ledger.Grant, unfit, notAccepted error) []metav1.Condition {
	accepted := condition(v1alpha1.ConditionServiceAccepted, true, reasonAccepted, "")
	if notAccepted != nil {
		accepted = condition(v1alpha1.ConditionServiceAccepted, false, reasonBadAnnotation, notAccepted.Error())
	}
	return []metav1.Condition{allocated(v1alpha1.ConditionServiceAllocated, g, unfit), accepted}
}

// servedConditions say whether a group serves a Service with what it got. There is one
// only of a Service that has addresses and no group, or once was like that: the
// annotation tells of the others, and a cluster's thousands need no third condition.
func servedConditions(svc *corev1.Service, g ledger.Grant, group string) []metav1.Condition {
	kind := v1alpha1.ConditionServiceServed
	known := meta.FindStatusCondition(svc.Status.Conditions, kind) != nil
	switch {
	case len(g.Addresses) == 0 && known:
		return []metav1.Condition{condition(kind, false, reasonNoAddress, "")}
	case len(g.Addresses) == 0:
		return nil
	case group == "":
		return []metav1.Condition{condition(kind, false, reasonNoGroup, noGroup)}
	case known:
		return []metav1.Condition{condition(kind, true, reasonServed, "by group "+group)}
	}
	return nil
}

// clear takes addresses out of a Service's status. It reports whether that made a
// new version, so that they are settled; svc is that version then.
func (r serviceReconciler) clear(ctx context.Context, svc *corev1.Service, away []netip.Addr) (settled bool, err error) {
	base := svc.DeepCopy()
	svc.Status.LoadBalancer.Ingress = slices.DeleteFunc(svc.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		a, err := netip.ParseAddr(i.IP)
		return err != nil || slices.Contains(away, a)
	})
	set(&svc.Status.Conditions, releasing(v1alpha1.ConditionServiceAllocated, away))
	if settled, err = r.patchStatus(ctx, svc, base); settled {
		r.ledger.Settled(ownerOf(kindService, svc), serviceAddresses(svc))
		r.changed()
	}
	return settled, err
}

// publish writes a Service's addresses and conditions, and an Event for each
// condition that says something that told, the version before this run, didn't.
func (r serviceReconciler) publish(
	ctx context.Context, svc, told *corev1.Service, conditions []metav1.Condition, addresses []netip.Addr,
) error {
	base := svc.DeepCopy()
	svc.Status.LoadBalancer.Ingress = ingressOf(svc.Status.LoadBalancer.Ingress, addresses)
	for _, c := range conditions {
		set(&svc.Status.Conditions, c)
	}
	if equality.Semantic.DeepEqual(svc.Status, base.Status) {
		return nil
	}
	if err := r.tenure.check(); err != nil { // after the version was read
		return err
	}
	if _, err := r.patchStatus(ctx, svc, base); err != nil {
		return err
	}
	r.tell(told, told.Status.Conditions, conditions)
	return nil
}

// ingressOf returns the ingress points that show addresses; equal ones stay as they
// are.
func ingressOf(shown []corev1.LoadBalancerIngress, addresses []netip.Addr) []corev1.LoadBalancerIngress {
	var ingress []corev1.LoadBalancerIngress
	for _, a := range addresses {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: a.String(), IPMode: new(corev1.LoadBalancerIPModeVIP)})
	}
	if equality.Semantic.DeepEqual(shown, ingress) {
		return shown
	}
	return ingress
}
