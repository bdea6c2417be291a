// SPDX-License-Identifier: Apache-2.0

// Package kube is the source of an agent in a Kubernetes cluster. It watches the objects of the API
// server (watch.go, lists.go), keeps the parts that this node needs in a Cache (cache.go) and translates
// changed objects into services (service.go, backend.go, endpoint.go) and routes (routes.go,
// policy.go). A Source delivers the changes to the agent, and saves the last state in a file, which
// an agent serves that starts while the API server is unreachable.
//
// The controller decides which node serves which object, and writes that into statuses. The source
// checks decisions against the specifications that administrators write (admission.go). It writes
// one object only, the report of its node (report.go).
package kube

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/spec"
)

// Objects of the cluster, to which problems refer.
type (
	// Kind is a kind of object in a Cache.
	Kind = source.Kind
	// Object identifies an object of the cluster.
	Object = source.Object
)

// The kinds.
const (
	KindService       Kind = "Service"
	KindEndpointSlice Kind = "EndpointSlice"
	KindNode          Kind = "Node"
	KindNamespace     Kind = "Namespace"
	KindGroup         Kind = "LoadBalancerGroup"
	KindLoadBalancer  Kind = "LoadBalancer"
	KindPeer          Kind = "BGPPeer"
	KindPool          Kind = "AddressPool"
	KindSecret        Kind = "Secret"
)

// strip removes unused fields of an object when it arrives: a cluster has many objects.
func strip(obj metav1.Object) {
	obj.SetManagedFields(nil)
	obj.SetOwnerReferences(nil)
	obj.SetFinalizers(nil)
	switch o := obj.(type) {
	case *corev1.Service:
		stripService(o)
	case *discoveryv1.EndpointSlice:
		o.Annotations = nil
		o.Labels = map[string]string{discoveryv1.LabelServiceName: o.Labels[discoveryv1.LabelServiceName]}
		for i := range o.Endpoints {
			o.Endpoints[i].TargetRef, o.Endpoints[i].DeprecatedTopology, o.Endpoints[i].Hostname = nil, nil, nil
		}
	case *corev1.Namespace:
		o.Annotations, o.Spec, o.Status = nil, corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	case *corev1.Node:
		maps.DeleteFunc(o.Annotations, func(key, _ string) bool { return key != nextHopsAnnotation })
		o.Spec = corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable, PodCIDRs: o.Spec.PodCIDRs}
		o.Status = corev1.NodeStatus{
			Conditions: o.Status.Conditions, Addresses: o.Status.Addresses, NodeInfo: corev1.NodeSystemInfo{BootID: o.Status.NodeInfo.BootID},
		}
	}
}

func stripService(svc *corev1.Service) {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		svc.Labels, svc.Annotations, svc.Status = nil, nil, corev1.ServiceStatus{}
		svc.Spec = corev1.ServiceSpec{Type: svc.Spec.Type, ClusterIPs: svc.Spec.ClusterIPs}
		return
	}
	maps.DeleteFunc(svc.Annotations, func(key, _ string) bool { return !spec.HasMeaning(key) })
	svc.Status.Conditions = slices.DeleteFunc(svc.Status.Conditions, func(c metav1.Condition) bool { return c.Type != v1alpha1.ConditionServiceServed })
}
