// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
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
	found := r.setFindings(ownerOf(kindLoadBalancer, &b), &b.Status.Conditions, b.Status.Group != "")
	return reconcile.Result{}, r.publish(ctx, &b, base, before, append(found, allocated))
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
	w := addressRequest{
		Request: alloc.Request{Owner: ownerOf(kindLoadBalancer, b), Families: []alloc.Family{balancerFamily(b.LoadBalancer)}, Pool: b.Spec.AddressPool},
		Version: b.ResourceVersion,
		Created: b.CreationTimestamp.Time,
		Labels:  maps.Clone(b.Labels),
	}
	for _, l := range b.Spec.Listeners {
		protocol := lb.TCP
		if l.Protocol == "UDP" {
			protocol = lb.UDP
		}
		w.Ports = append(w.Ports, alloc.Port{Number: uint16(l.Port), Protocol: protocol})
	}
	if s := b.Spec.Segment; s != nil {
		if err := w.Segment.Type.UnmarshalText([]byte(s.Type)); err != nil {
			return w.reject(reasonBadSpec, err)
		}
		w.Segment.ID = uint32(s.ID)
	}
	if b.Spec.Address != "" {
		a, err := netip.ParseAddr(string(b.Spec.Address))
		if err == nil {
			err = lb.CheckAddress(a)
		}
		if err != nil {
			return w.reject(reasonBadSpec, err)
		}
		w.Wanted = []netip.Addr{a}
	}
	return w
}

// balancerFamily returns the family of the address, whether or not it is specified.
func balancerFamily(b *v1alpha1.LoadBalancer) alloc.Family {
	a, err := netip.ParseAddr(string(b.Spec.Address))
	switch {
	case err == nil:
		return alloc.FamilyOf(a)
	case b.Spec.IPFamily == "IPv6":
		return alloc.IPv6
	default:
		return alloc.IPv4
	}
}

// checkParts returns the statuses of listeners and pools at an address, under the policy of the
// LoadBalancer's group. Pools that no listener uses are accepted.
func (r balancerReconciler) checkParts(b *v1alpha1.LoadBalancer, address netip.Addr) (listeners []v1alpha1.PartStatus, pools []v1alpha1.PoolStatus) {
	policy, networks := r.policies.of(b.Status.Group)
	problems := spec.CheckLoadBalancer(b, address, policy, networks)
	for _, l := range b.Spec.Listeners {
		part := v1alpha1.PartStatus{Name: l.Name, Accepted: true}
		for _, p := range problems {
			if part.Accepted && p.Listener == l.Name && p.Member == "" {
				part.Accepted, part.Message = false, p.Text
			}
		}
		listeners = append(listeners, part)
	}
	for _, pool := range b.Spec.Pools {
		pools = append(pools, poolStatus(pool, problems))
	}
	return listeners, pools
}

// poolStatus lists the members that can't be served, each once.
func poolStatus(pool v1alpha1.Pool, problems []spec.Problem) v1alpha1.PoolStatus {
	s := v1alpha1.PoolStatus{PartStatus: v1alpha1.PartStatus{Name: pool.Name, Accepted: true}}
	for _, p := range problems {
		known := slices.ContainsFunc(s.Members, func(m v1alpha1.PartStatus) bool { return m.Name == p.Member })
		if p.Pool == pool.Name && p.Member != "" && !known {
			s.Members = append(s.Members, v1alpha1.PartStatus{Name: p.Member, Message: p.Text})
		}
	}
	if n := len(s.Members); n > 0 {
		s.Accepted, s.Message = false, fmt.Sprintf("%d of %d members can't be served", n, len(pool.Members))
	}
	return s
}

// checkedAddress returns the address at which parts are checked: without an assigned one,
// an address for documentation (RFC 5737, RFC 3849).
func checkedAddress(b *v1alpha1.LoadBalancer, g allocation) netip.Addr {
	switch {
	case len(g.Addresses) > 0:
		return g.Addresses[0]
	case balancerFamily(b) == alloc.IPv6:
		return netip.MustParseAddr("2001:db8::1")
	default:
		return netip.MustParseAddr("192.0.2.1")
	}
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

// decide sets a LoadBalancer's status but for what nodes report, and returns its condition about
// addresses. What isn't decided yet stays as it is.
func (r balancerReconciler) decide(b *v1alpha1.LoadBalancer, g allocation) metav1.Condition {
	b.Status.Address = list(g.Addresses)
	owner := ownerOf(kindLoadBalancer, b)
	group, decided := r.groups.of(owner)
	if decided {
		b.Status.Group = group
	}
	if b.Status.Address == "" {
		b.Status.Group, decided = "", true
	}
	b.Status.Listeners, b.Status.Pools = r.checkParts(b, checkedAddress(b, g))
	conditions := []metav1.Condition{allocatedCondition(v1alpha1.ConditionAllocated, g)}
	if bounded, known := r.quotas.of(owner, b.Status.Group, g.Addresses); decided && known {
		conditions = append(conditions, balancerReady(b, bounded))
	}
	for i := range conditions {
		conditions[i].ObservedGeneration = b.Generation
		set(&b.Status.Conditions, conditions[i])
	}
	return conditions[0]
}

// balancerReady says whether all parts of a LoadBalancer are served. The health of members
// is known only to agents.
func balancerReady(b *v1alpha1.LoadBalancer, bounded bounded) metav1.Condition {
	switch {
	case b.Status.Address == "":
		return condition(v1alpha1.ConditionReady, false, reasonNoAddress, "")
	case b.Status.Group == "":
		return condition(v1alpha1.ConditionReady, false, reasonNoGroup, noGroupMessage)
	case bounded.refused != "":
		return condition(v1alpha1.ConditionReady, false, reasonQuotaExceeded, bounded.refused)
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
	message := "by group " + b.Status.Group
	if bounded.raised != "" {
		message += "; " + bounded.raised
	}
	return condition(v1alpha1.ConditionReady, true, reasonServed, message)
}
