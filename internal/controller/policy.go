// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"reflect"
	"sync"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
)

// policies are the policies of groups, and the cluster's networks, to which they refer.
type policies struct {
	mu       sync.Mutex
	groups   map[string]spec.Policy
	networks *spec.Networks
}

// known reports whether policies have been read.
func (p *policies) known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.networks != nil
}

// of returns the policy of a group, nil if the group is unknown, and the networks.
func (p *policies) of(group string) (*spec.Policy, *spec.Networks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if policy, found := p.groups[group]; found {
		return &policy, p.networks
	}
	return nil, p.networks
}

// set replaces all policies and networks, and reports whether any changed.
func (p *policies) set(groups map[string]spec.Policy, networks *spec.Networks) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = p.networks == nil || !reflect.DeepEqual(p.groups, groups) || !reflect.DeepEqual(p.networks, networks)
	p.groups, p.networks = groups, networks
	return changed
}

// policyReconciler reads policies and networks, and reconciles all LoadBalancers when they
// change. All groups, pools, nodes and Services are one request.
type policyReconciler struct{ *deps }

func (r policyReconciler) reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var (
		groups   v1alpha1.LoadBalancerGroupList
		pools    v1alpha1.AddressPoolList
		nodes    corev1.NodeList
		services corev1.ServiceList
		all      v1alpha1.LoadBalancerList
	)
	for _, list := range []client.ObjectList{&groups, &pools, &nodes, &services, &all} {
		if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return reconcile.Result{}, err
		}
	}
	policies := map[string]spec.Policy{}
	for i := range groups.Items {
		policies[groups.Items[i].Name], _ = spec.NewPolicy(&groups.Items[i].Spec.LoadBalancers) // the API server rejects invalid ones
	}
	if r.policies.set(policies, networksOf(nodes.Items, services.Items, pools.Items)) {
		for i := range all.Items {
			r.enqueue(ownerOf(kindLoadBalancer, &all.Items[i]))
		}
	}
	return reconcile.Result{}, nil
}

func networksOf(nodes []corev1.Node, services []corev1.Service, pools []v1alpha1.AddressPool) *spec.Networks {
	n := spec.NewNetworks()
	for i := range nodes {
		addresses, pods := spec.NodeNetworks(&nodes[i])
		n.Node(addresses, pods, true)
	}
	for i := range services {
		n.Service(spec.ClusterIPs(&services[i]), true)
	}
	var ranges []netipx.IPRange
	for i := range pools {
		valid, _ := spec.PoolRanges(&pools[i])
		ranges = append(ranges, valid...)
	}
	n.SetPools(ranges)
	return n
}
