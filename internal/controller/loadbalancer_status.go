// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/controller/ledger"
)

// Reasons of a LoadBalancer's condition Ready, and of a Service's ConditionServiceServed.
const (
	reasonServed      = "Served"
	reasonNoAddress   = "NoAddress"
	reasonNoGroup     = "NoGroup"
	reasonNotAccepted = "NotAccepted"
)

// noGroup is what to tell of an object that nobody serves.
const noGroup = "no group with nodes matches"

// clear takes the address out of a LoadBalancer's status. It reports whether that
// made a new version, so that it is settled; b is that version then.
func (r balancerReconciler) clear(ctx context.Context, b *v1alpha1.LoadBalancer, away []netip.Addr) (settled bool, err error) {
	base := b.DeepCopy()
	b.Status.Address = ""
	set(&b.Status.Conditions, releasing(v1alpha1.ConditionAllocated, away))
	if settled, err = r.patchStatus(ctx, b, base); settled {
		r.ledger.Settled(ownerOf(kindLoadBalancer, b), nil)
		r.changed()
	}
	return settled, err
}

// publish writes a LoadBalancer's status, and an Event for each condition that says
// something that told, the version before this run, didn't.
func (r balancerReconciler) publish(ctx context.Context, b, told *v1alpha1.LoadBalancer, g ledger.Grant, unfit error) error {
	base := b.DeepCopy()
	b.Status.Address = list(g.Addresses)
	if group, decided := r.groups.of(ownerOf(kindLoadBalancer, b)); decided {
		b.Status.Group = group
	}
	if b.Status.Address == "" {
		b.Status.Group = ""
	}
	b.Status.Listeners, b.Status.Pools = checkParts(b, checkedAddress(b, g))
	conditions := []metav1.Condition{allocated(v1alpha1.ConditionAllocated, g, unfit), balancerReady(b)}
	for i := range conditions {
		conditions[i].ObservedGeneration = b.Generation
		set(&b.Status.Conditions, conditions[i])
	}
	if equality.Semantic.DeepEqual(b.Status, base.Status) {
		return nil
	}
	if err := r.tenure.check(); err != nil { // after the version was read
		return err
	}
	if _, err := r.patchStatus(ctx, b, base); err != nil {
		return err
	}
	r.tell(told, told.Status.Conditions, conditions[:1])
	return nil
}

// balancerReady says whether all of a LoadBalancer is served. Which of its members
// live is known to the agents.
func balancerReady(b *v1alpha1.LoadBalancer) metav1.Condition {
	switch {
	case b.Status.Address == "":
		return condition(v1alpha1.ConditionReady, false, reasonNoAddress, "")
	case b.Status.Group == "":
		return condition(v1alpha1.ConditionReady, false, reasonNoGroup, noGroup)
	}
	for _, l := range b.Status.Listeners {
		if !l.Accepted {
			return condition(v1alpha1.ConditionReady, false, reasonNotAccepted, "listener "+l.Name+": "+l.Message)
		}
	}
	for _, p := range b.Status.Pools {
		if !p.Accepted {
			return condition(v1alpha1.ConditionReady, false, reasonNotAccepted, "pool "+p.Name+": "+p.Message)
		}
	}
	return condition(v1alpha1.ConditionReady, true, reasonServed, "by group "+b.Status.Group)
}
