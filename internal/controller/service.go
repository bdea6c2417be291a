// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/controller/ledger"
)

// serviceReconciler gives addresses and groups to Services.
//
// It sets no finalizer: what a deleted Service had is free at once. Nothing has to
// be done before a Service goes, as agents see the deletion in the same watch in
// which they would see the next owner, and before that; and a finalizer would keep
// namespaces from being deleted wherever Fairlead has been removed.
type serviceReconciler struct{ *office }

func (r serviceReconciler) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var svc corev1.Service
	err := r.Get(ctx, request.NamespacedName, &svc)
	switch {
	case apierrors.IsNotFound(err):
		return r.forget(ctx, ownerNamed(kindService, request.NamespacedName), &svc)
	case err != nil:
		return reconcile.Result{}, err
	case r.ours(&svc):
		return r.serve(ctx, &svc)
	case wasOurs(&svc):
		return reconcile.Result{}, r.withdraw(ctx, &svc)
	case r.ledger.Knows(ownerOf(kindService, &svc)):
		return r.disown(ctx, &svc)
	}
	return reconcile.Result{}, nil
}

// serve gives a Service what it wishes, as far as that can be, and publishes it.
func (r serviceReconciler) serve(ctx context.Context, svc *corev1.Service) (reconcile.Result, error) {
	if !r.ledger.KnowsNamespace(svc.Namespace) {
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	}
	wish, unfit, notAccepted := serviceWish(svc)
	grant := r.ledger.Claim(wish)
	r.changed()
	told := svc.DeepCopy()
	if away := toClear(grant, serviceAddresses(svc)); len(away) > 0 {
		settled, err := r.clear(ctx, svc, away)
		if err != nil || !settled {
			return reconcile.Result{RequeueAfter: time.Second}, err
		}
		grant = r.ledger.Grant(wish.Owner)
	}
	conditions := serviceConditions(grant, unfit, notAccepted)
	group, decided := r.groups.of(wish.Owner)
	if len(grant.Addresses) == 0 {
		group, decided = "", true
	}
	if decided {
		conditions = append(conditions, servedConditions(svc, grant, group)...)
	}
	if err := r.publish(ctx, svc, told, conditions, grant.Addresses); err != nil || !decided {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.annotate(ctx, svc, group)
}

// toClear returns what has to be taken out of a status that shows some addresses,
// before others are added: what is leaving, and what shouldn't be there.
func toClear(g ledger.Grant, shown []netip.Addr) []netip.Addr {
	away := slices.Clone(g.Leaving)
	for _, a := range shown {
		if !slices.Contains(g.Addresses, a) && !slices.Contains(away, a) {
			away = append(away, a)
		}
	}
	return away
}

// annotate writes the group that serves the Service, or takes the annotation away.
func (r serviceReconciler) annotate(ctx context.Context, svc *corev1.Service, group string) error {
	if svc.Annotations[v1alpha1.AnnotationGroup] == group {
		return nil
	}
	base := svc.DeepCopy()
	if group == "" {
		delete(svc.Annotations, v1alpha1.AnnotationGroup)
	} else {
		metav1.SetMetaDataAnnotation(&svc.ObjectMeta, v1alpha1.AnnotationGroup, group)
	}
	_, err := r.patch(ctx, svc, base)
	return err
}

// withdraw takes everything from a Service that isn't Fairlead's any more. What its
// status shows is Fairlead's only beside the condition: both are written at once.
func (r serviceReconciler) withdraw(ctx context.Context, svc *corev1.Service) error {
	if meta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated) != nil {
		base := svc.DeepCopy()
		svc.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		meta.RemoveStatusCondition(&svc.Status.Conditions, v1alpha1.ConditionServiceAllocated)
		meta.RemoveStatusCondition(&svc.Status.Conditions, v1alpha1.ConditionServiceAccepted)
		meta.RemoveStatusCondition(&svc.Status.Conditions, v1alpha1.ConditionServiceServed)
		if _, err := r.patchStatus(ctx, svc, base); err != nil {
			return err
		}
	}
	if err := r.annotate(ctx, svc, ""); err != nil {
		return err
	}
	r.release(ownerOf(kindService, svc))
	return nil
}

// disown gives back what the ledger has of a Service that has nothing of Fairlead's:
// if the API server says so too, as the cache may be older than what the ledger
// knows.
func (r serviceReconciler) disown(ctx context.Context, svc *corev1.Service) (reconcile.Result, error) {
	var now corev1.Service
	if err := r.live.Get(ctx, requestFor(ownerOf(kindService, svc)).NamespacedName, &now); err != nil {
		return reconcile.Result{}, err
	}
	if r.ours(&now) || wasOurs(&now) {
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	}
	r.release(ownerOf(kindService, svc))
	return reconcile.Result{}, nil
}
