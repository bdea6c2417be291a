// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.io/fairlead/api/v1alpha1"
)

// ServedBy returns the LoadBalancerGroup that serves a Service or LoadBalancer, as it was decided
// in the object's status; empty for none. Nodes serve no other objects, and don't decide about
// quotas themselves.
func ServedBy(object metav1.Object) string {
	switch o := object.(type) {
	case *corev1.Service:
		if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionServiceServed); c != nil && c.Status == metav1.ConditionTrue {
			return c.Message
		}
	case *v1alpha1.LoadBalancer:
		return o.Status.Group
	}
	return ""
}

// Selector translates a selector; nil selects everything.
func Selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// Filter selects the Services and LoadBalancers that a group may serve.
type Filter struct {
	objects, namespaces labels.Selector
	classes             []string
}

// NewFilter translates the selectors of a group. The zero Filter, of one with an error,
// selects nothing.
func NewFilter(f *v1alpha1.ServiceFilter) (Filter, error) {
	objects, err := Selector(f.Selector)
	if err != nil {
		return Filter{}, fmt.Errorf("services.selector: %w", err)
	}
	namespaces, err := Selector(f.NamespaceSelector)
	if err != nil {
		return Filter{}, fmt.Errorf("services.namespaceSelector: %w", err)
	}
	return Filter{objects, namespaces, f.Classes}, nil
}

// Selects reports whether a group may serve an object of a class, with these labels, in a
// namespace with these labels. Groups without classes serve Fairlead's own.
func (f Filter) Selects(class string, object, namespace labels.Set) bool {
	if f.objects == nil || !f.objects.Matches(object) || !f.namespaces.Matches(namespace) {
		return false
	}
	if len(f.classes) == 0 {
		return class == "" || class == v1alpha1.LoadBalancerClass
	}
	return slices.Contains(f.classes, class)
}

// NotAggregated says why no node may announce a prefix: several groups serve addresses in it, and a node
// of one would attract packets for the others'. It is empty if nodes may.
func NotAggregated(prefix netip.Prefix, served iter.Seq2[string, []netip.Addr]) string {
	groups := map[string]bool{}
	for group, addresses := range served {
		if group != "" && slices.ContainsFunc(addresses, prefix.Contains) {
			groups[group] = true
		}
	}
	if len(groups) < 2 {
		return ""
	}
	return fmt.Sprintf("spec.announce.aggregate: %s has addresses of LoadBalancerGroups %s: they are announced as host routes",
		prefix, strings.Join(slices.Sorted(maps.Keys(groups)), ", "))
}
