// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
)

// policies are the policies of groups, and the networks of the nodes' cluster, to which they refer.
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

// set replaces all policies and networks, and returns a function that reports whether a
// LoadBalancer of a group is concerned by the difference.
func (p *policies) set(groups map[string]spec.Policy, networks *spec.Networks) func(b *v1alpha1.LoadBalancer, group string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	former, before := p.groups, p.networks
	p.groups, p.networks = groups, networks
	return func(b *v1alpha1.LoadBalancer, group string) bool {
		_, was := former[group]
		_, is := groups[group]
		return before == nil || was != is || !reflect.DeepEqual(former[group], groups[group]) || hasMember(b, func(a netip.Addr) bool {
			return !networks.Same(before, a)
		})
	}
}

// hasMember reports whether the address, monitor address or tunnel end of a member is one of these.
func hasMember(b *v1alpha1.LoadBalancer, is func(netip.Addr) bool) bool {
	return slices.ContainsFunc(b.Spec.Pools, func(p v1alpha1.Pool) bool {
		return slices.ContainsFunc(p.Members, func(m v1alpha1.Member) bool {
			return slices.ContainsFunc([]v1alpha1.IPAddress{m.Address, m.MonitorAddress, m.TunnelEnd}, func(text v1alpha1.IPAddress) bool {
				a, err := netip.ParseAddr(string(text))
				return err == nil && is(a)
			})
		})
	})
}

// policyDelay batches changes of nodes, Services, pools, peers and groups.
const policyDelay = 100 * time.Millisecond

// policyReconciler reads policies, networks and the addresses that no object gets, and reconciles the
// LoadBalancers that are concerned when they change. All groups, pools, peers, nodes and Services are one request.
type policyReconciler struct{ *deps }

// policyChanged reports whether an update changes policies or networks.
func policyChanged(before, now client.Object) bool {
	switch o := now.(type) {
	case *corev1.Service:
		return !slices.Equal(o.Spec.ClusterIPs, before.(*corev1.Service).Spec.ClusterIPs)
	case *v1alpha1.BalancerNode:
		return !slices.Equal(o.Status.Addresses, before.(*v1alpha1.BalancerNode).Status.Addresses)
	case *corev1.Node:
		old := before.(*corev1.Node)
		return !slices.Equal(o.Status.Addresses, old.Status.Addresses) || !slices.Equal(o.Spec.PodCIDRs, old.Spec.PodCIDRs)
	}
	return before.GetGeneration() != now.GetGeneration()
}

func (r policyReconciler) reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var (
		groups   v1alpha1.LoadBalancerGroupList
		pools    v1alpha1.AddressPoolList
		nodes    corev1.NodeList
		services corev1.ServiceList
		peers    v1alpha1.BGPPeerList
		agents   v1alpha1.BalancerNodeList
		all      v1alpha1.LoadBalancerList
	)
	for _, list := range []client.ObjectList{&groups, &pools, &peers, &agents, &all} {
		if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := r.listNodes(ctx, &nodes, &services); err != nil {
		return reconcile.Result{}, err
	}
	policies := map[string]spec.Policy{}
	for i := range groups.Items {
		policies[groups.Items[i].Name], _ = spec.NewPolicy(&groups.Items[i].Spec.LoadBalancers) // the API server rejects invalid ones
	}
	if r.allocations.SetHosts(hostsOf(nodes.Items, agents.Items, peers.Items)) {
		r.pools.enqueueAfter(reconcile.Request{}, usageDelay)
	}
	concerned := r.policies.set(policies, networksOf(nodes.Items, services.Items, pools.Items))
	for i := range all.Items {
		owner := ownerOf(kindLoadBalancer, &all.Items[i])
		if group, _ := r.groups.of(owner); concerned(&all.Items[i], group) {
			r.enqueueOwner(owner, 0)
		}
	}
	return reconcile.Result{}, nil
}

// hostsOf describes the addresses that no object gets: of nodes, of the interfaces of their agents, and of
// BGP peers.
func hostsOf(nodes []corev1.Node, agents []v1alpha1.BalancerNode, peers []v1alpha1.BGPPeer) map[netip.Addr]string {
	hosts := map[netip.Addr]string{}
	slices.SortFunc(agents, func(a, b v1alpha1.BalancerNode) int { return cmp.Compare(b.Name, a.Name) })
	for i := range agents {
		for _, text := range agents[i].Status.Addresses {
			if a, err := netip.ParseAddr(string(text)); err == nil {
				hosts[a] = "node " + agents[i].Name
			}
		}
	}
	for i := range peers {
		if a, err := netip.ParseAddr(peers[i].Spec.Address); err == nil {
			hosts[a] = "BGPPeer " + peers[i].Name
		}
	}
	slices.SortFunc(nodes, func(a, b corev1.Node) int { return cmp.Compare(b.Name, a.Name) })
	for i := range nodes {
		addresses, _ := spec.NodeNetworks(&nodes[i])
		for _, a := range addresses {
			hosts[a] = "node " + nodes[i].Name
		}
	}
	return hosts
}

// SetHosts replaces the addresses of nodes and BGP peers, and reports whether they have changed. Owners keep
// their addresses.
func (l *allocations) SetHosts(hosts map[netip.Addr]string) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	former := l.hosts
	if maps.Equal(hosts, former) {
		return false
	}
	l.hosts, l.supplyChanged = hosts, true
	for _, all := range []map[netip.Addr]string{former, hosts} {
		for a := range all {
			if former[a] != hosts[a] {
				l.refresh(a, lb.Segment{})
			}
		}
	}
	l.serveWaiting()
	return true
}

// HostsIn describes the addresses of nodes and BGP peers in some ranges, in their order, with owners and
// without.
func (l *allocations) HostsIn(ranges []netipx.IPRange) (assigned, free []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range slices.SortedFunc(maps.Keys(l.hosts), netip.Addr.Compare) {
		text, holders := fmt.Sprintf("%s is an address of %s", a, l.hosts[a]), l.supply.Untagged.Holders(a)
		switch {
		case !slices.ContainsFunc(ranges, func(r netipx.IPRange) bool { return r.Contains(a) }):
		case len(holders) > 0:
			assigned = append(assigned, text+" and of "+slices.MinFunc(holders, alloc.Owner.Compare).String())
		default:
			free = append(free, text)
		}
	}
	return assigned, free
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
