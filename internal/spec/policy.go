// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// Networks are the networks of a cluster. They may change, but not while others use them.
type Networks struct {
	// nodes, services and pods count the objects with an address or a CIDR, lengths the CIDRs by
	// the number of their bits.
	nodes, services map[netip.Addr]int
	pods            map[netip.Prefix]int
	lengths         map[int]int
	pools           *netipx.IPSet
}

// NewNetworks returns networks without any address.
func NewNetworks() *Networks {
	return &Networks{
		nodes: map[netip.Addr]int{}, services: map[netip.Addr]int{}, pods: map[netip.Prefix]int{}, lengths: map[int]int{},
		pools: &netipx.IPSet{},
	}
}

// Node adds the addresses of a Node and the CIDRs of its pods, or removes them.
func (n *Networks) Node(addresses []netip.Addr, pods []netip.Prefix, add bool) {
	for _, a := range addresses {
		count(n.nodes, a, add)
	}
	for _, p := range pods {
		count(n.pods, p.Masked(), add)
		count(n.lengths, p.Bits(), add)
	}
}

// Service adds the cluster IPs of a Service, or removes them.
func (n *Networks) Service(addresses []netip.Addr, add bool) {
	for _, a := range addresses {
		count(n.services, a, add)
	}
}

func count[K comparable](counts map[K]int, k K, add bool) {
	if add {
		counts[k]++
	} else if counts[k]--; counts[k] == 0 {
		delete(counts, k)
	}
}

// SetPools replaces the ranges of AddressPools.
func (n *Networks) SetPools(ranges []netipx.IPRange) {
	var b netipx.IPSetBuilder
	for _, r := range ranges {
		b.AddRange(r)
	}
	n.pools, _ = b.IPSet() // without invalid ones
}

// InPool reports whether an address is in an AddressPool.
func (n *Networks) InPool(a netip.Addr) bool { return n.pools.Contains(a) }

// inPods reports whether the CIDRs of pods contain an address.
func (n *Networks) inPods(a netip.Addr) bool {
	for bits := range n.lengths {
		if p, err := a.Prefix(bits); err == nil && n.pods[p] > 0 {
			return true
		}
	}
	return false
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

const (
	// defaultRetention is the default of a pool's retainFor.
	defaultRetention = time.Hour
	// MaxRetained is how many addresses are retained for a namespace, the last released ones.
	MaxRetained = 64
)

// RetainFor returns how long released addresses of an AddressPool are retained; 0 for not at all.
func RetainFor(p *v1alpha1.AddressPool) time.Duration {
	switch {
	case p.Spec.RetainFor != nil:
		return p.Spec.RetainFor.Duration
	case p.Spec.External:
		return 0
	}
	return defaultRetention
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

// Place is an address in a network: the untagged one, or a segment.
type Place struct {
	Segment lb.Segment
	Address netip.Addr
}

// PlaceOf returns the place of an address.
func PlaceOf(s lb.Segment, a netip.Addr) Place {
	if !s.Tagged() {
		s = lb.Segment{}
	}
	return Place{s, a}
}

// Destinations yields the places to which nodes send packets for a backend of a service, with the
// ends of the paths of errors about them: "" and ".monitorAddress".
func Destinations(s *lb.Service, b *lb.Backend) iter.Seq2[string, Place] {
	segment := b.Segment
	switch {
	case b.TunnelEnd.IsValid():
		segment = lb.Segment{}
	case !segment.Tagged() && s.Forward == lb.L2DSR:
		segment = s.Segment
	}
	return func(yield func(string, Place) bool) {
		if yield("", PlaceOf(segment, cmp.Or(b.TunnelEnd, b.Address))) && b.MonitorAddress.IsValid() {
			yield(".monitorAddress", Place{Address: b.MonitorAddress})
		}
	}
}

// Check returns the errors of backends at addresses of AddressPools, which are or may become
// VIPs: balancers would send packets to each other. Addresses of nodes aren't.
func (n *Networks) Check(s *lb.Service) (found []lb.FieldError) {
	for i := range s.Backends {
		for field, place := range Destinations(s, &s.Backends[i]) {
			if at := place.Address; n.nodes[at] == 0 && at != s.Address && n.InPool(at) {
				found = append(found, lb.FieldError{Path: fmt.Sprintf("backends[%d]%s", i, field), Err: fmt.Errorf("%s is in an AddressPool", at)})
			}
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
		{"Node", n.nodes[a] > 0},
		{"Pod", n.inPods(a)},
		{"Service", n.services[a] > 0},
		{"LinkLocal", a.IsLinkLocalUnicast()},
	} {
		if network.has {
			in = append(in, network.name)
		}
	}
	return in
}

// Same reports whether an address is in the same networks and pools as in others.
func (n *Networks) Same(o *Networks, a netip.Addr) bool {
	return n.InPool(a) == o.InPool(a) && slices.Equal(n.of(a), o.of(a))
}

// Policy is the LoadBalancerPolicy of a group. The zero value allows nothing.
type Policy struct {
	members, tunnelEnds []netip.Prefix
	cluster             []string
	macs                bool
	segments            []segments
}

// segments are consecutive virtual networks, and the networks in them that are announced.
type segments struct {
	first, last lb.Segment
	announced   []netip.Prefix
}

func (r segments) has(s lb.Segment) bool {
	return s.Type == r.first.Type && r.first.ID <= s.ID && s.ID <= r.last.ID
}

// NewPolicy translates a policy. The error joins the errors of entries, which are ignored.
func NewPolicy(from *v1alpha1.LoadBalancerPolicy) (p Policy, err error) {
	p.cluster, p.macs = from.ClusterNetworks, from.MemberMACs
	var errs [3]error
	p.members, errs[0] = prefixes("memberNetworks", from.MemberNetworks)
	p.tunnelEnds, errs[1] = prefixes("tunnelEnds", from.TunnelEnds)
	for i, r := range from.Segments {
		var wrong []lb.FieldError
		f := fields{errs: &wrong}
		first := f.segment("first", &v1alpha1.Segment{Type: r.Type, ID: r.First})
		last := f.segment("last", &v1alpha1.Segment{Type: r.Type, ID: max(r.First, r.Last)})
		if !first.Tagged() || len(wrong) > 0 {
			errs[2] = errors.Join(errs[2], fmt.Errorf("segments[%d]: bad segment", i))
			continue
		}
		announced, err := prefixes(fmt.Sprintf("segments[%d].announce", i), r.Announce)
		errs[2] = errors.Join(errs[2], err)
		p.segments = append(p.segments, segments{first, last, announced})
	}
	return p, errors.Join(errs[:]...)
}

// Announced returns the networks in a VLAN whose addresses are announced.
func (p Policy) Announced(vlan uint16) (all []netip.Prefix) {
	segment := lb.Segment{Type: lb.SegmentVLAN, ID: uint32(vlan)}
	for _, s := range p.segments {
		if s.has(segment) {
			all = append(all, s.announced...)
		}
	}
	return all
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

// Check returns the violations of a policy by a service of a LoadBalancer, its members' as
// errors of backends, and the errors of Networks.Check.
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
		if b.MonitorAddress.IsValid() {
			add(path+"monitorAddress", p.checkAddress(b.MonitorAddress, p.members, "memberNetworks", n))
		}
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

// Allows reports whether the policy allows a network; the untagged one always.
func (p Policy) Allows(s lb.Segment) bool {
	return !s.Tagged() || slices.ContainsFunc(p.segments, func(r segments) bool { return r.has(s) })
}

func (p Policy) checkSegment(s lb.Segment) error {
	if p.Allows(s) {
		return nil
	}
	return fmt.Errorf("%s isn't in the group's spec.loadBalancers.segments", s)
}

func (p Policy) checkAddress(a netip.Addr, allowed []netip.Prefix, field string, n *Networks) error {
	if !slices.ContainsFunc(allowed, func(net netip.Prefix) bool { return net.Contains(a) }) {
		return fmt.Errorf("%s isn't in the group's spec.loadBalancers.%s", a, field)
	}
	return p.checkNetworks(a, n.of(a))
}

// CheckNode returns the error of a member at the address of a node.
func (p Policy) CheckNode(a netip.Addr, n *Networks) error {
	if n.nodes[a] == 0 {
		return nil
	}
	return p.checkNetworks(a, []string{"Node"})
}

func (p Policy) checkNetworks(a netip.Addr, in []string) error {
	for _, network := range in {
		if !slices.Contains(p.cluster, network) {
			return fmt.Errorf("%s is in the network %s, which isn't in the group's spec.loadBalancers.clusterNetworks", a, network)
		}
	}
	return nil
}
