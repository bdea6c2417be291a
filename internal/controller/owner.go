// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/internal/alloc"
)

// Kinds of owners of addresses.
const (
	kindService      = "Service"
	kindLoadBalancer = "LoadBalancer"
)

func ownerOf(kind string, object client.Object) alloc.Owner {
	return alloc.Owner{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

func ownerNamed(kind string, name types.NamespacedName) alloc.Owner {
	return alloc.Owner{Kind: kind, Namespace: name.Namespace, Name: name.Name}
}

func requestFor(o alloc.Owner) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: o.Name}}
}
