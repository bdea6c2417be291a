// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// networkPolicies has the pod selectors of NetworkPolicies for ingress, by namespace and name.
// Other policies don't restrict balanced packets: answers belong to a connection that was let in.
type networkPolicies map[string]map[string]labels.Selector

// set adds or replaces a policy, and reports whether its selector has changed.
func (n networkPolicies) set(id Object, p *networkingv1.NetworkPolicy) bool {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil || len(p.Spec.PolicyTypes) > 0 && !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		return n.remove(id)
	}
	if before, known := n[id.Namespace][id.Name]; known && before.String() == selector.String() {
		return false
	}
	if n[id.Namespace] == nil {
		n[id.Namespace] = map[string]labels.Selector{}
	}
	n[id.Namespace][id.Name] = selector
	return true
}

// remove reports whether there was such a policy.
func (n networkPolicies) remove(id Object) bool {
	_, known := n[id.Namespace][id.Name]
	delete(n[id.Namespace], id.Name)
	if len(n[id.Namespace]) == 0 {
		delete(n, id.Namespace)
	}
	return known
}

func (n networkPolicies) objects() (objects []Object) {
	for namespace, policies := range n {
		for name := range policies {
			objects = append(objects, Object{Kind: KindNetworkPolicy, Namespace: namespace, Name: name})
		}
	}
	return objects
}

// checkPolicies adds a problem to a Service with a pod on this node, packets for which bypass the
// node's netfilter, if a policy may select that pod. Of the pods' labels only those are known
// that the Service selects.
func (t *translation) checkPolicies(svc Object, selector map[string]string) {
	policies := t.policies[svc.Namespace]
	if len(policies) == 0 || !t.hasPod(svc) {
		return
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(policies)), func(name string) bool {
		return !maySelect(policies[name], selector)
	})
	if len(names) == 0 {
		return
	}
	others := ""
	if n := len(names) - 1; n > 0 {
		others = fmt.Sprintf(" and %d more", n)
	}
	t.fail("NetworkPolicy %s%s may select its pods: where netfilter enforces policies, they don't apply to packets for pods of this node without dataplane.filterPods",
		names[0], others)
}

// maySelect reports whether a selector may match a pod that has these labels and unknown others.
func maySelect(s labels.Selector, known labels.Set) bool {
	requirements, selectable := s.Requirements()
	return selectable && !slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		return known.Has(r.Key()) && !r.Matches(known)
	})
}
