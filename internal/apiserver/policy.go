// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/deploy/helm"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/apiserver/schema"
	"fairlead.io/fairlead/internal/spec"
)

// policyFile has the rights of projects without a cluster. The kinds AddressPool and
// LoadBalancerGroup have the same fields, with the same meaning, rules and defaults.
type policyFile struct {
	AddressPools []poolEntry `json:"addressPools"`
	// Services bounds load balancers, and what a project, as a namespace, uses.
	Services struct {
		MaxPorts     int32                   `json:"maxPorts"`
		PerNamespace v1alpha1.NamespaceQuota `json:"perNamespace"`
	} `json:"services"`
	// LoadBalancers says which members are served.
	LoadBalancers v1alpha1.LoadBalancerPolicy `json:"loadBalancers"`
	DataPlane     struct {
		MinHealthCheckInterval *metav1.Duration    `json:"minHealthCheckInterval"`
		FirewallMarkMask       int64               `json:"firewallMarkMask"`
		IPVS                   bool                `json:"ipvs"`
		Limits                 v1alpha1.FlowLimits `json:"limits"`
	} `json:"dataPlane"`
}

// poolEntry is a pool of addresses. Addresses are chosen from the first pool with a free one.
type poolEntry struct {
	Name string `json:"name"`
	// Projects are those that may use the pool, or "*" for all, which is the default. An external
	// pool has to name them: the first project that requests an address has it.
	Projects       []string                `json:"projects"`
	Addresses      []v1alpha1.AddressRange `json:"addresses"`
	SkipZeroAnd255 bool                    `json:"skipZeroAnd255"`
	External       bool                    `json:"external"`
	AutoAssign     *bool                   `json:"autoAssign"`
	RetainFor      *metav1.Duration        `json:"retainFor"`
}

// policy has the rights of projects.
type policy struct {
	pools []projectPool
	// members are the rules of members, for which networks has the addresses of pools and nodes.
	members  spec.Policy
	networks *spec.Networks
	// bounds are what a project may use, and the shortest interval of health checks; limits are what
	// listeners without limits of their own get.
	bounds spec.Bounds
	limits v1alpha1.FlowLimits
	// marks are the bits of firewall marks; 0 for none.
	marks uint32
}

// projectPool is a pool of addresses, and the projects that may use it.
type projectPool struct {
	alloc.Pool
	projects  []string
	retainFor time.Duration
}

// defaultGroup is the name of the only group of a server without a cluster.
const defaultGroup = "default"

// parsePolicy reads a policy, in YAML. The error names the field.
func parsePolicy(text []byte, kinds kinds) (*policy, error) {
	var f policyFile
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("empty")
	}
	p := &policy{networks: spec.NewNetworks(), limits: f.DataPlane.Limits, marks: uint32(f.DataPlane.FirewallMarkMask)}
	group := &v1alpha1.LoadBalancerGroup{Spec: v1alpha1.LoadBalancerGroupSpec{
		Services:      v1alpha1.ServiceFilter{MaxPorts: f.Services.MaxPorts, PerNamespace: f.Services.PerNamespace},
		LoadBalancers: f.LoadBalancers,
		DataPlane: v1alpha1.DataPlane{
			MinHealthCheckInterval: f.DataPlane.MinHealthCheckInterval, FirewallMarkMask: f.DataPlane.FirewallMarkMask,
			IPVS: f.DataPlane.IPVS, Limits: f.DataPlane.Limits,
		},
	}}
	group.Name = defaultGroup
	err := kinds.check("loadbalancergroups", "LoadBalancerGroup", group, "")
	if err != nil {
		return nil, err
	}
	p.bounds = spec.BoundsOf(group)
	if p.members, err = spec.NewPolicy(&f.LoadBalancers); err != nil {
		return nil, fmt.Errorf("loadBalancers.%w", err)
	}
	for i, s := range f.LoadBalancers.Segments {
		if s.Announce != nil {
			return nil, fmt.Errorf("loadBalancers.segments[%d].announce: not here: agents announce addresses by bgp.announce of their configuration", i)
		}
	}
	return p, p.addPools(f.AddressPools, kinds)
}

// addPools adds the pools of a file.
func (p *policy) addPools(entries []poolEntry, kinds kinds) error {
	var networks []netipx.IPRange
	for i, e := range entries {
		at := fmt.Sprintf("addressPools[%d].", i)
		object := &v1alpha1.AddressPool{Spec: v1alpha1.AddressPoolSpec{Addresses: e.Addresses, SkipZeroAnd255: e.SkipZeroAnd255, AutoAssign: e.AutoAssign}}
		object.Spec.RetainFor = e.RetainFor
		object.Name = e.Name
		if err := kinds.check("addresspools", "AddressPool", object, at); err != nil {
			return err
		}
		object.Spec.External = e.External // which has projects in place of a namespaceSelector
		ranges, err := spec.PoolRanges(object)
		switch {
		case err != nil:
			return fmt.Errorf("%saddresses: %w", at, err)
		case slices.ContainsFunc(entries[:i], func(o poolEntry) bool { return o.Name == e.Name }):
			return fmt.Errorf("%sname: %s is there twice", at, e.Name)
		case e.External && len(e.Projects) == 0:
			return fmt.Errorf(`%sprojects: an external pool has to say which projects may use it, "*" for all`, at)
		case len(e.Projects) == 0:
			e.Projects = []string{allProjects}
		}
		for j, name := range e.Projects {
			if name != allProjects && !validProject(name) {
				return fmt.Errorf(`%sprojects[%d]: %q can't be the name of a project`, at, j, name)
			}
		}
		p.pools = append(p.pools, projectPool{projects: e.Projects, retainFor: spec.RetainFor(object), Pool: alloc.Pool{
			Name: e.Name, Ranges: ranges, Automatic: e.AutoAssign == nil || *e.AutoAssign, External: e.External,
		}})
		networks = append(networks, ranges...)
	}
	p.networks.SetPools(networks)
	return nil
}

// kinds are the schemas of Fairlead's kinds, by their plural names in lower case.
type kinds map[string]*schema.Schema

func loadKinds() (kinds, error) {
	all := kinds{}
	for _, resource := range []string{"addresspools", "balancernodes", "balancernodestatistics", "loadbalancergroups", "loadbalancers"} {
		text, err := helm.Definition(resource)
		if err != nil {
			return nil, err
		}
		if all[resource], err = schema.New(text); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// check validates an object. Fields of its specification are called as in a file, below a path.
func (k kinds) check(resource, kind string, typed any, path string) (err error) {
	object := &unstructured.Unstructured{}
	if object.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
		return err
	}
	object.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(kind))
	k[resource].Complete(object)
	if found := k[resource].Validate(context.Background(), object); len(found) > 0 {
		found[0].Field = path + fieldOf(found[0].Field)
		return found[0]
	}
	return nil
}

// poolsOf returns the names of the pools that a project may use.
func (p *policy) poolsOf(project string) (names []string) {
	for _, pool := range p.pools {
		if slices.Contains(pool.projects, project) || slices.Contains(pool.projects, allProjects) {
			names = append(names, pool.Name)
		}
	}
	return names
}

// decide sets the status of a load balancer. Failure is why there is no address, or why the address that
// it has isn't allowed.
func (p *policy) decide(b *v1alpha1.LoadBalancer, address netip.Addr, failure error, raised string, refused spec.Refusal) {
	d := spec.Decision{
		Address: address, Group: defaultGroup, Policy: &p.members, Networks: p.networks, Refused: refused, Raised: raised,
		Allocated: metav1.Condition{Type: v1alpha1.ConditionAllocated, Status: metav1.ConditionTrue, Reason: "Allocated", Message: address.String()},
	}
	if failure != nil {
		d.Refused = spec.Refusal{Reason: "NoAddress", Message: failure.Error()}
		d.Allocated.Status, d.Allocated.Reason, d.Allocated.Message = metav1.ConditionFalse, "AllocationFailed", failure.Error()
	}
	d.Write(b)
}

// served returns what nodes are to serve of a load balancer: not the parts that aren't accepted, no
// health check more often than allowed, and no listener without the limits that it has to have.
// Nothing of one that isn't served, nor pools without a listener.
func (p *policy) served(b *v1alpha1.LoadBalancer) *v1alpha1.LoadBalancer {
	used := *b
	used.Spec.Listeners, used.Spec.Pools = nil, nil
	if spec.ServedBy(b) != "" {
		used.Spec.Listeners = slices.DeleteFunc(acceptedListeners(b), func(l v1alpha1.Listener) bool { return l.Enabled != nil && !*l.Enabled })
		used.Spec.Pools = slices.DeleteFunc(slices.Clone(b.Spec.Pools), func(pool v1alpha1.Pool) bool {
			return !slices.ContainsFunc(used.Spec.Listeners, func(l v1alpha1.Listener) bool { return l.Pool == pool.Name })
		})
	}
	b = used.DeepCopy()
	for i := range b.Spec.Listeners {
		l := &b.Spec.Listeners[i].Limits
		if l.NewFlows == 0 {
			l.NewFlows = p.limits.NewFlows
		}
		if l.NewFlowsPerSource == 0 {
			l.NewFlowsPerSource = p.limits.NewFlowsPerSource
		}
	}
	for i := range b.Spec.Pools {
		pool := &b.Spec.Pools[i]
		for _, s := range b.Status.Pools {
			if s.Name == pool.Name {
				refused := map[string]bool{}
				for _, m := range s.Members {
					refused[m.Name] = true
				}
				pool.Members = slices.DeleteFunc(pool.Members, func(m v1alpha1.Member) bool { return refused[memberName(&m)] })
			}
		}
		if check, err := spec.HealthCheck(pool.HealthCheck); err == nil {
			if raised, shorter := p.bounds.Interval(check); shorter {
				pool.HealthCheck.Interval = &metav1.Duration{Duration: raised.Interval}
			}
		}
	}
	b.Status.Listeners, b.Status.Pools = nil, nil
	return b
}

func acceptedListeners(b *v1alpha1.LoadBalancer) []v1alpha1.Listener {
	return slices.DeleteFunc(slices.Clone(b.Spec.Listeners), func(l v1alpha1.Listener) bool {
		return slices.ContainsFunc(b.Status.Listeners, func(s v1alpha1.PartStatus) bool { return s.Name == l.Name && !s.Accepted })
	})
}
