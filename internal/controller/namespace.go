// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// namespaceReconciler tells the ledger of namespaces' labels, by which pools and
// groups pick.
type namespaceReconciler struct{ *office }

func (r namespaceReconciler) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := namespaceMetadata()
	err := r.Get(ctx, request.NamespacedName, namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	for _, owner := range r.ledger.SetNamespace(request.Name, labelsOf(namespace, err == nil)) {
		r.wake(owner)
	}
	r.changed()
	return reconcile.Result{}, nil
}

// labelsOf returns a namespace's labels: nil only if it isn't there.
func labelsOf(namespace *metav1.PartialObjectMetadata, there bool) labels.Set {
	switch {
	case !there:
		return nil
	case namespace.Labels == nil:
		return labels.Set{}
	default:
		return namespace.Labels
	}
}

// namespaceMetadata is a namespace without its specification and status, which nobody
// needs here.
func namespaceMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}

// namespaceList is a list of those.
func namespaceList() *metav1.PartialObjectMetadataList {
	return &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
}
