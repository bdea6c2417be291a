// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// LoadBalancerOwner returns a LoadBalancer as an owner of addresses.
func LoadBalancerOwner(namespace, name string) alloc.Owner {
	return alloc.Owner{Kind: "LoadBalancer", Namespace: namespace, Name: name}
}

// AddressRequest returns the request of a LoadBalancer, without the pools that it may use, and
// the network of the address. After an error the request has no address.
func AddressRequest(b *v1alpha1.LoadBalancer) (r alloc.Request, segment lb.Segment, err error) {
	r = alloc.Request{Owner: LoadBalancerOwner(b.Namespace, b.Name), Families: []alloc.Family{balancerFamily(b)}, Pool: b.Spec.AddressPool}
	for _, l := range b.Spec.Listeners {
		protocol := lb.TCP
		if l.Protocol == "UDP" {
			protocol = lb.UDP
		}
		r.Ports = append(r.Ports, alloc.Port{Number: uint16(l.Port), Protocol: protocol})
	}
	if s := b.Spec.Segment; s != nil {
		if err := segment.Type.UnmarshalText([]byte(s.Type)); err != nil {
			return r, segment, err
		}
		segment.ID = uint32(s.ID)
	}
	if b.Spec.Address != "" {
		a, err := netip.ParseAddr(string(b.Spec.Address))
		if err == nil {
			err = lb.CheckAddress(a)
		}
		if err != nil {
			return r, segment, err
		}
		r.Wanted = []netip.Addr{a}
	}
	return r, segment, nil
}

// balancerFamily returns the family of the address, whether or not it is specified.
func balancerFamily(b *v1alpha1.LoadBalancer) alloc.Family {
	a, err := netip.ParseAddr(string(b.Spec.Address))
	switch {
	case err == nil:
		return alloc.FamilyOf(a)
	case b.Spec.IPFamily == "IPv6":
		return alloc.IPv6
	default:
		return alloc.IPv4
	}
}

// PartStatuses returns the statuses of listeners and pools at an address, under the policy of the
// LoadBalancer's group, nil for no group. Pools that no listener uses are accepted. Without an
// address the parts are checked at one for documentation (RFC 5737, RFC 3849).
func PartStatuses(b *v1alpha1.LoadBalancer, address netip.Addr, policy *Policy, n *Networks) (listeners []v1alpha1.PartStatus, pools []v1alpha1.PoolStatus) {
	switch {
	case address.IsValid():
	case balancerFamily(b) == alloc.IPv6:
		address = netip.MustParseAddr("2001:db8::1")
	default:
		address = netip.MustParseAddr("192.0.2.1")
	}
	errs := CheckLoadBalancer(b, address, policy, n)
	for _, l := range b.Spec.Listeners {
		part := v1alpha1.PartStatus{Name: l.Name, Accepted: true}
		for _, p := range errs {
			if part.Accepted && p.Listener == l.Name && p.Member == "" {
				part.Accepted, part.Message = false, p.Text
			}
		}
		listeners = append(listeners, part)
	}
	for _, pool := range b.Spec.Pools {
		pools = append(pools, poolStatus(pool, errs))
	}
	return listeners, pools
}

// poolStatus lists the members that can't be served, each once.
func poolStatus(pool v1alpha1.Pool, errs []PartError) v1alpha1.PoolStatus {
	s := v1alpha1.PoolStatus{PartStatus: v1alpha1.PartStatus{Name: pool.Name, Accepted: true}}
	known := map[string]bool{}
	for _, p := range errs {
		if p.Pool == pool.Name && p.Member != "" && !known[p.Member] {
			known[p.Member] = true
			s.Members = append(s.Members, v1alpha1.PartStatus{Name: p.Member, Message: p.Text})
		}
	}
	if n := len(s.Members); n > 0 {
		s.Accepted, s.Message = false, fmt.Sprintf("%d of %d members can't be served", n, len(pool.Members))
	}
	return s
}

// Decision is the decision about a LoadBalancer.
type Decision struct {
	// Address is the LoadBalancer's, invalid without one; Allocated is its condition about that.
	Address   netip.Addr
	Allocated metav1.Condition
	// Group is the LoadBalancerGroup that the LoadBalancer is placed in, empty for none; Policy is
	// the group's, with the networks to which it refers.
	Group    string
	Policy   *Policy
	Networks *Networks
	// Refused is why the group doesn't serve it, Raised is as in its Claim.
	Refused Refusal
	Raised  string
}

// NoGroup is the message of conditions of objects without group.
const NoGroup = "no group with nodes matches: see the condition Ready of LoadBalancerGroups"

// Write writes a decision into the status of a LoadBalancer. The health of members is known only
// to agents.
func (d *Decision) Write(b *v1alpha1.LoadBalancer) {
	s := &b.Status
	if s.Address = ""; d.Address.IsValid() {
		s.Address = d.Address.String()
	}
	if s.Group = d.Group; s.Address == "" || d.Refused.Reason != "" {
		s.Group = "" // nodes obey it
	}
	s.Listeners, s.Pools = PartStatuses(b, d.Address, d.Policy, d.Networks)
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch why := NotAccepted(s); {
	case s.Address == "":
		ready.Reason = "NoAddress"
	case d.Group == "":
		ready.Reason, ready.Message = "NoGroup", NoGroup
	case d.Refused.Reason != "":
		ready.Reason, ready.Message = d.Refused.Reason, d.Refused.Message
	case why != "":
		ready.Reason, ready.Message = "NotAccepted", why
	default:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, "Served", "by group "+d.Group
		if d.Raised != "" {
			ready.Message += "; " + d.Raised
		}
		if name, is := annotationOf(b); is {
			ready.Message += "; LoadBalancers have fields: the annotation " + name + " is not read"
		}
	}
	d.Allocated.ObservedGeneration, ready.ObservedGeneration = b.Generation, b.Generation
	meta.SetStatusCondition(&s.Conditions, d.Allocated)
	meta.SetStatusCondition(&s.Conditions, ready)
}

// NotAccepted returns why the first part that isn't accepted isn't; empty if all are.
func NotAccepted(s *v1alpha1.LoadBalancerStatus) string {
	for _, l := range s.Listeners {
		if !l.Accepted {
			return "listener " + l.Name + ": " + l.Message
		}
	}
	for _, p := range s.Pools {
		if !p.Accepted {
			return "pool " + p.Name + ": " + p.Message
		}
	}
	return ""
}
