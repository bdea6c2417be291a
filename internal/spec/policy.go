// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// Networks are the networks of a cluster.
type Networks struct {
	nodes, services map[netip.Addr]bool
	pods, pools     *netipx.IPSet
}

// NewNetworks returns the networks with these addresses of nodes, cluster IPs of Services,
// CIDRs of pods and ranges of AddressPools.
func NewNetworks(nodes, services []netip.Addr, pods []netip.Prefix, pools []netipx.IPRange) *Networks {
	n := &Networks{nodes: setOf(nodes), services: setOf(services)}
	var podSet, poolSet netipx.IPSetBuilder
	for _, p := range pods {
		podSet.AddPrefix(p)
	}
	for _, r := range pools {
		poolSet.AddRange(r)
	}
	n.pods, _ = podSet.IPSet() // without invalid ones
	n.pools, _ = poolSet.IPSet()
	return n
}

func setOf(addresses []netip.Addr) map[netip.Addr]bool {
	set := make(map[netip.Addr]bool, len(addresses))
	for _, a := range addresses {
		set[a] = true
	}
	return set
}

// NodeNetworks returns the addresses of a Node, and the CIDRs of its pods.
func NodeNetworks(node *corev1.Node) (addresses []netip.Addr, pods []netip.Prefix) {
	for _, a := range node.Status.Addresses {
		if address, err := netip.ParseAddr(a.Address); err == nil { // not a host name
			addresses = append(addresses, address.Unmap())
		}
	}
	for _, text := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			pods = append(pods, p)
		}
	}
	return addresses, pods
}

// ClusterIPs returns the cluster IPs of a Service.
func ClusterIPs(svc *corev1.Service) (addresses []netip.Addr) {
	for _, text := range svc.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(text); err == nil { // not "None"
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// PoolRanges returns the valid ranges of an AddressPool, and the first error of one.
func PoolRanges(p *v1alpha1.AddressPool) (ranges []netipx.IPRange, err error) {
	for _, text := range p.Spec.Addresses {
		r, bad := alloc.ParseRange(string(text))
		switch {
		case bad == nil && p.Spec.SkipZeroAnd255:
			ranges = append(ranges, alloc.WithoutZeroAnd255(r)...)
		case bad == nil:
			ranges = append(ranges, r)
		case err == nil:
			err = bad
		}
	}
	return ranges, err
}

// Check returns the errors of backends at addresses of AddressPools, which are or may become
// VIPs: balancers would send packets to each other. Addresses of nodes aren't.
func (n *Networks) Check(s *lb.Service) (found []lb.FieldError) {
	for i, b := range s.Backends {
		at := b.Address
		if b.TunnelEnd.IsValid() {
			at = b.TunnelEnd
		}
		if !n.nodes[at] && at != s.Address && n.pools.Contains(at) {
			found = append(found, lb.FieldError{Path: fmt.Sprintf("backends[%d]", i), Err: fmt.Errorf("%s is in an AddressPool", at)})
		}
	}
	return found
}

// of returns the cluster's networks that an address is in, in words of the API.
func (n *Networks) of(a netip.Addr) (in []string) {
	for _, network := range []struct {
		name string
		has  bool
	}{
		{"Node", n.nodes[a]},
		{"Pod", n.pods.Contains(a)},
		{"Service", n.services[a]},
		{"LinkLocal", a.IsLinkLocalUnicast()},
	} {
		if network.has {
			in = append(in, network.name)
		}
	}
	return in
}

// Policy is the LoadBalancerPolicy of a group. The zero value allows nothing.
type Policy struct {
	members, tunnelEnds []netip.Prefix
	cluster             []string
	macs                bool
	segments            []segments
}

// segments are consecutive virtual networks.
type segments struct{ first, last lb.Segment }

// NewPolicy translates a policy. The error joins those of entries, which are ignored.
func NewPolicy(from *v1alpha1.LoadBalancerPolicy) (p Policy, err error) {
	p.cluster, p.macs = from.ClusterNetworks, from.MemberMACs
	var errs [3]error
	p.members, errs[0] = prefixes("memberNetworks", from.MemberNetworks)
	p.tunnelEnds, errs[1] = prefixes("tunnelEnds", from.TunnelEnds)
	for i, r := range from.Segments {
		first := segmentOf(&v1alpha1.Segment{Type: r.Type, ID: r.First})
		last := segmentOf(&v1alpha1.Segment{Type: r.Type, ID: max(r.First, r.Last)})
		if !first.Tagged() || first.Type != last.Type {
			errs[2] = errors.Join(errs[2], fmt.Errorf("segments[%d]: bad segment", i))
			continue
		}
		p.segments = append(p.segments, segments{first, last})
	}
	return p, errors.Join(errs[:]...)
}

func prefixes(field string, from []v1alpha1.CIDR) (all []netip.Prefix, err error) {
	for i, text := range from {
		p, bad := netip.ParsePrefix(string(text))
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("%s[%d]: bad CIDR %q", field, i, text))
			continue
		}
		all = append(all, p.Masked())
	}
	return all, err
}

// Check returns what a policy forbids of a service of a LoadBalancer, those of members as errors
// of backends, and the errors of Networks.Check.
func (p Policy) Check(s *lb.Service, n *Networks) []lb.FieldError {
	found := n.Check(s)
	add := func(path string, err error) {
		if err != nil {
			found = append(found, lb.FieldError{Path: path, Err: err})
		}
	}
	add("segment", p.checkSegment(s.Segment))
	overlay := s.Forward.Overlay() != lb.SegmentUnset
	for i, b := range s.Backends {
		path := fmt.Sprintf("backends[%d].", i)
		add(path+"segment", p.checkSegment(b.Segment))
		if overlay {
			add(path+"tunnelEnd", p.checkAddress(b.TunnelEnd, p.tunnelEnds, "tunnelEnds", n))
			continue
		}
		add(path+"address", p.checkAddress(b.Address, p.members, "memberNetworks", n))
		if !b.MAC.IsZero() && !p.macs {
			add(path+"mac", errors.New("the group's spec.loadBalancers.memberMACs doesn't allow it"))
		}
	}
	return found
}

func (p Policy) checkSegment(s lb.Segment) error {
	if !s.Tagged() || slices.ContainsFunc(p.segments, func(r segments) bool {
		return s.Type == r.first.Type && r.first.ID <= s.ID && s.ID <= r.last.ID
	}) {
		return nil
	}
	return fmt.Errorf("%s isn't in the group's spec.loadBalancers.segments", s)
}

func (p Policy) checkAddress(a netip.Addr, allowed []netip.Prefix, field string, n *Networks) error {
	if !slices.ContainsFunc(allowed, func(net netip.Prefix) bool { return net.Contains(a) }) {
		return fmt.Errorf("%s isn't in the group's spec.loadBalancers.%s", a, field)
	}
	for _, network := range n.of(a) {
		if !slices.Contains(p.cluster, network) {
			return fmt.Errorf("%s is in the network %s, which isn't in the group's spec.loadBalancers.clusterNetworks", a, network)
		}
	}
	return nil
}
