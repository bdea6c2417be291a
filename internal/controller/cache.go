// SPDX-License-Identifier: Apache-2.0

package controller

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

// newScheme returns the kinds that the controller knows.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return scheme, nil
}

// newMapper says where the kinds are found, so that nobody has to ask: that the API
// server is away when a controller starts is no error then.
func newMapper(scheme *runtime.Scheme) meta.RESTMapper {
	core, own := corev1.SchemeGroupVersion, v1alpha1.GroupVersion()
	mapper := meta.NewDefaultRESTMapper(scheme.PreferredVersionAllGroups())
	for _, of := range []struct {
		version schema.GroupVersion
		scope   meta.RESTScope
		kinds   []string
	}{
		{core, meta.RESTScopeNamespace, []string{"Service", "Pod"}},
		{core, meta.RESTScopeRoot, []string{"Node", "Namespace"}},
		{own, meta.RESTScopeNamespace, []string{"LoadBalancer"}},
		{own, meta.RESTScopeRoot, []string{"AddressPool", "LoadBalancerGroup"}},
	} {
		for _, kind := range of.kinds {
			mapper.Add(of.version.WithKind(kind), of.scope)
			mapper.Add(of.version.WithKind(kind+"List"), of.scope)
		}
	}
	return mapper
}

// cacheOptions says what is kept in memory: of pods only the agents' in the
// controller's own namespace, and of all objects only what is read. Objects are
// written by patches of what differs, so what is left out stays as it is.
func cacheOptions(namespace string) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Service{}: {Transform: slimService},
			&corev1.Node{}:    {Transform: slimNode},
			&corev1.Pod{}: {
				Namespaces: map[string]cache.Config{namespace: {}},
				Label:      labels.SelectorFromSet(labels.Set{labelName: nameFairlead, labelComponent: componentAgent}),
				Transform:  slimPod,
			},
		},
	}
}

func slimService(object any) (any, error) {
	if svc, is := object.(*corev1.Service); is {
		svc.ManagedFields = nil
		delete(svc.Annotations, corev1.LastAppliedConfigAnnotation)
		svc.Spec.Selector = nil
	}
	return object, nil
}

func slimNode(object any) (any, error) {
	if n, is := object.(*corev1.Node); is {
		n.ObjectMeta = metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion,
			Labels: n.Labels, DeletionTimestamp: n.DeletionTimestamp,
		}
		n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable}
		n.Status = corev1.NodeStatus{Conditions: only(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })}
	}
	return object, nil
}

func slimPod(object any) (any, error) {
	if p, is := object.(*corev1.Pod); is {
		p.ManagedFields, p.Annotations = nil, nil
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName}
		p.Status = corev1.PodStatus{Conditions: only(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })}
	}
	return object, nil
}

// only returns those that are wanted in a slice of their own.
func only[T any](all []T, wanted func(T) bool) (some []T) {
	for _, one := range all {
		if wanted(one) {
			some = append(some, one)
		}
	}
	return some
}
