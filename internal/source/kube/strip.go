// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"fairlead.io/fairlead/api/v1alpha1"
)

// strip takes out of an object what nobody needs here, as soon as it has arrived:
// a cluster has many.
func strip(obj any) (any, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil //nolint:nilerr // what is no object is not ours to judge
	}
	accessor.SetManagedFields(nil)
	accessor.SetOwnerReferences(nil)
	accessor.SetFinalizers(nil)
	switch o := obj.(type) {
	case *corev1.Service:
		stripService(o)
	case *discoveryv1.EndpointSlice:
		o.Annotations = nil
		o.Labels = map[string]string{discoveryv1.LabelServiceName: o.Labels[discoveryv1.LabelServiceName]}
		for i := range o.Endpoints {
			o.Endpoints[i].TargetRef, o.Endpoints[i].DeprecatedTopology, o.Endpoints[i].Hostname = nil, nil, nil
		}
	case *corev1.Node:
		o.Annotations = nil
		o.Spec = corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable}
		o.Status = corev1.NodeStatus{Conditions: o.Status.Conditions, Addresses: o.Status.Addresses}
	}
	return obj, nil
}

func stripService(svc *corev1.Service) {
	svc.Labels = nil
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		svc.Annotations, svc.Spec, svc.Status = nil, corev1.ServiceSpec{Type: svc.Spec.Type}, corev1.ServiceStatus{}
		return
	}
	maps.DeleteFunc(svc.Annotations, func(key, _ string) bool { return !strings.HasPrefix(key, v1alpha1.Group+"/") })
	svc.Spec.Selector = nil
	svc.Status.Conditions = nil
}
