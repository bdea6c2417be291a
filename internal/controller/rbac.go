// SPDX-License-Identifier: Apache-2.0

package controller

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"fairlead.io/fairlead/api/v1alpha1"
)

// ClusterRules are what the controller does in the whole cluster, each verb for a
// reason: "get" is how an object is asked for past the cache before its address is
// given away, "list" and "watch" fill the cache, "patch" publishes.
func ClusterRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"services/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes", "namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"loadbalancers"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"addresspools", "loadbalancergroups"}, Verbs: []string{"list", "watch"}},
		{
			APIGroups: []string{v1alpha1.Group},
			Resources: []string{"addresspools/status", "loadbalancergroups/status", "loadbalancers/status"},
			Verbs:     []string{"patch"},
		},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
}

// NamespaceRules are what the controller does in its own namespace: it holds its
// Lease, and watches the agents.
func NamespaceRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{leaseName},
			Verbs: []string{"get", "update"},
		},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}},
	}
}
