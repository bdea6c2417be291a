// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/controller/ledger"
	"fairlead.io/fairlead/internal/lb"
)

// balancerReconciler gives addresses and groups to LoadBalancers, and says which of
// their parts can be served.
type balancerReconciler struct{ *office }

func (r balancerReconciler) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var b v1alpha1.LoadBalancer
	err := r.Get(ctx, request.NamespacedName, &b)
	switch {
	case apierrors.IsNotFound(err):
		return r.forget(ctx, ownerNamed(kindLoadBalancer, request.NamespacedName), &b)
	case err != nil:
		return reconcile.Result{}, err
	case !r.ledger.KnowsNamespace(b.Namespace):
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	}
	wish, unfit := balancerWish(&b)
	grant := r.ledger.Claim(wish)
	r.changed()
	told := b.DeepCopy()
	if away := toClear(grant, balancerAddresses(&b)); len(away) > 0 {
		settled, err := r.clear(ctx, &b, away)
		if err != nil || !settled {
			return reconcile.Result{RequeueAfter: time.Second}, err
		}
		grant = r.ledger.Grant(wish.Owner)
	}
	return reconcile.Result{}, r.publish(ctx, &b, told, grant, unfit)
}

// balancerWish returns what a LoadBalancer asks for. unfit says that it can't be
// given any address, as something can't be understood that the API server should
// have refused.
func balancerWish(b *v1alpha1.LoadBalancer) (w ledger.Wish, unfit error) {
	w = ledger.Wish{
		Owner:   ownerOf(kindLoadBalancer, b),
		Created: b.CreationTimestamp.Time,
		Labels:  maps.Clone(b.Labels),
		Pool:    b.Spec.AddressPool,
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
			return w, &unfitError{reasonBadSpec, err}
		}
		w.Segment.ID = uint32(s.ID)
	}
	if b.Spec.Address != "" {
		a, err := netip.ParseAddr(string(b.Spec.Address))
		if err == nil {
			err = lb.CheckAddress(a)
		}
		if err != nil {
			return w, &unfitError{reasonBadSpec, err}
		}
		w.Wanted = []netip.Addr{a}
	}
	w.Families = []alloc.Family{balancerFamily(b)}
	return w, nil
}

// balancerFamily returns the family of the address, given or not.
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

// balancerAddresses returns the address in a LoadBalancer's status, if there is one.
func balancerAddresses(b *v1alpha1.LoadBalancer) []netip.Addr {
	if a, err := netip.ParseAddr(b.Status.Address); err == nil {
		return []netip.Addr{a}
	}
	return nil
}
