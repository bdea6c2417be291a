// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
	"fairlead.io/fairlead/internal/lb"
)

// members are the nodes with which a service is shared, by what the program
// recognises them by, and what they are (enum member).
type members map[balancerMemberKey]uint8

// thisNode is for people where others have a next hop.
const thisNode = "this node"

// stations are the balancers that are recognised by their MAC addresses.
func stations(svc *lb.Service) []nexthop.Target {
	if svc.Forward != lb.L2DSR {
		return nil
	}
	targets := make([]nexthop.Target, len(svc.Membership.Balancers))
	for i, a := range svc.Membership.Balancers {
		targets[i] = nexthop.Target{Address: a, OnLink: true}
	}
	return targets
}

// stay makes the backend that is this node itself one that is always reached. No
// packet is sent out of the loopback interface: it stands for the node's kernel.
func (pl *plan) stay() {
	for i, b := range pl.backends {
		if pl.svc.Membership.Is(b) {
			pl.hops[i] = nexthop.Result{Hop: nexthop.Hop{Interface: "lo", Index: loopback, MTU: math.MaxUint16}}
		}
	}
}

// sharedFlags say how packets of a service come from its other balancers.
func sharedFlags(svc *lb.Service) balancerViewFlag {
	switch {
	case len(svc.Membership.Balancers) == 0:
		return 0
	case svc.Forward == lb.L2DSR:
		return balancerViewFlagVIEW_SHARED
	}
	return balancerViewFlagVIEW_TUNNEL_END
}

// membersOf are those of a service. A balancer whose MAC address isn't known yet is
// missing: what it sends is balanced once more, mostly to where it was sent.
func membersOf(pl plan) members {
	m := members{}
	shared := &pl.svc.Membership
	if len(shared.Balancers) == 0 {
		return m
	}
	for _, station := range pl.balancers {
		if station.Err == nil {
			key := balancerMemberKey{Forward: uint32(balancerForwardFORWARD_L2DSR)}
			copy(key.Address[:], station.Hop.Destination[:])
			m[key] = uint8(balancerMemberMEMBER_BALANCER)
		}
	}
	if pl.svc.Forward == lb.L2DSR {
		return m
	}
	m[tunnelKey(pl.svc.Forward, shared.Self)] = uint8(balancerMemberMEMBER_SELF)
	for _, a := range shared.Balancers {
		m[tunnelKey(pl.svc.Forward, a)] = uint8(balancerMemberMEMBER_BALANCER)
	}
	return m
}

// tunnelKey is what the outer headers of a mode's tunnels say of an address.
func tunnelKey(forward lb.Forward, a netip.Addr) balancerMemberKey {
	key := balancerMemberKey{Address: a.As16(), Forward: uint32(balancerForwardFORWARD_IPIP)}
	if forward == lb.GUE {
		key.Forward = uint32(balancerForwardFORWARD_GUE)
	}
	return key
}

// meet makes these, and no others, the members of a service. Those that it keeps are
// never missing.
func (p *Plane) meet(s *service, next members) error {
	var errs []error
	for key, what := range next {
		before, known := s.members[key]
		if !known {
			p.met[key]++
		}
		if known && before == what || p.met[key] > 1 {
			continue // a node is the same to all services
		}
		if err := p.kernel.maps.Members.Put(key, what); err != nil {
			errs = append(errs, fmt.Errorf("table members: %w", err))
			if delete(next, key); !known {
				p.met[key]--
			}
		}
	}
	for key := range s.members {
		if _, stays := next[key]; stays {
			continue
		}
		if p.met[key]--; p.met[key] > 0 {
			continue
		}
		delete(p.met, key)
		errs = append(errs, p.part(key))
	}
	s.members = next
	return errors.Join(errs...)
}

func (p *Plane) part(key balancerMemberKey) error {
	if err := p.kernel.maps.Members.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("table members: %w", err)
	}
	return nil
}

// disownMembers removes those that an earlier agent left and that nobody wants.
func (p *Plane) disownMembers() error {
	var key balancerMemberKey
	var what uint8
	var gone []balancerMemberKey
	it := p.kernel.maps.Members.Iterate()
	for it.Next(&key, &what) {
		if p.met[key] == 0 {
			gone = append(gone, key)
		}
	}
	errs := []error{it.Err()}
	for _, key := range gone {
		errs = append(errs, p.part(key))
	}
	return errors.Join(errs...)
}
