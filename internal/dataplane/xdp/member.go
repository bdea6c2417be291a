// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

// members are the nodes with which a service is shared: the key by which the
// program recognises each, and its kind (enum peer).
type members map[table.BalancerPeerKey]uint8

// thisNode is shown in the place of a next hop.
const thisNode = "this node"

// balancerTargets are the balancers that are recognised by their MAC addresses.
func balancerTargets(svc *lb.Service) []nexthop.Target {
	if svc.Forward != lb.L2DSR {
		return nil
	}
	targets := make([]nexthop.Target, len(svc.Membership.Balancers))
	for i, a := range svc.Membership.Balancers {
		targets[i] = nexthop.Target{Address: a, OnLink: true}
	}
	return targets
}

// sharedByServers returns a service of which this node is found to be a server, with the other
// servers as possible balancers; nil for others. With l2dsr nodes that are each other's servers
// would send a packet in a circle, as no hop limit ends it.
func sharedByServers(pl *plan) *lb.Service {
	if pl.svc.Forward != lb.L2DSR || pl.svc.Membership.Self.IsValid() {
		return nil
	}
	own := slices.IndexFunc(pl.hops, func(hop nexthop.Result) bool { return errors.Is(hop.Err, nexthop.ErrLocal) })
	if own < 0 {
		return nil
	}
	shared := *pl.svc
	shared.Membership.Self = pl.backends[own].Address
	for _, b := range pl.svc.Backends {
		if b.Address != shared.Membership.Self {
			shared.Membership.Balancers = append(shared.Membership.Balancers, b.Address)
		}
	}
	return &shared
}

// reachLocal makes the backend that is this node itself one that is always reached.
// No packet is sent out of the loopback interface: it stands for the node's kernel.
func (pl *plan) reachLocal() {
	for i, b := range pl.backends {
		if pl.svc.Membership.Is(b) {
			pl.hops[i] = nexthop.Result{Hop: nexthop.Hop{Interface: "lo", Index: nexthop.Loopback, MTU: math.MaxUint16}}
		}
	}
}

// sharing is how packets of a service come from its other balancers.
type sharing struct {
	flagged
	member, balancers, tunnelled bool
}

func (s *sharing) describe(svc *lb.Service) {
	s.member, s.balancers = svc.Membership.Self.IsValid(), len(svc.Membership.Balancers) > 0
	s.tunnelled = svc.Forward != lb.L2DSR
}

func (s *sharing) needs() program.Features { return when(s.member, program.FeatureMember) }

func (s *sharing) flags() table.BalancerViewFlag {
	switch {
	case !s.balancers:
		return 0
	case s.tunnelled:
		return table.BalancerViewFlagVIEW_TUNNEL_END
	}
	return table.BalancerViewFlagVIEW_SHARED
}

// membersOf returns the members of a service. A balancer whose MAC address isn't known yet is
// missing: its packets are balanced once more, mostly to the same backend. With DSR the
// members are the nodes to which packets are relayed, as limits don't count packets from them.
func membersOf(pl *plan) members {
	m := members{}
	shared := &pl.svc.Membership
	for _, station := range pl.balancers {
		if station.Err == nil {
			m[stationKey(pl.svc.Forward, station.Hop)] = uint8(table.BalancerPeerPEER_BALANCER)
		}
	}
	for _, hop := range pl.hops {
		if hop.Err == nil && hop.Hop.Relay {
			m[stationKey(pl.svc.Forward, hop.Hop)] = uint8(table.BalancerPeerPEER_BALANCER)
		}
	}
	if pl.svc.Forward == lb.L2DSR || len(shared.Balancers) == 0 {
		return m
	}
	m[tunnelKey(pl.svc.Forward, shared.Self)] = uint8(table.BalancerPeerPEER_LOCAL)
	for _, a := range shared.Balancers {
		m[tunnelKey(pl.svc.Forward, a)] = uint8(table.BalancerPeerPEER_BALANCER)
	}
	return m
}

// stationKey is the key of a member by its MAC address.
func stationKey(forward lb.Forward, hop nexthop.Hop) table.BalancerPeerKey {
	key := table.BalancerPeerKey{Forward: uint32(slices.Index(forwards(), forward))}
	copy(key.Address[:], hop.Destination[:])
	return key
}

// tunnelKey is the key of a member by the outer header of a mode's tunnels.
func tunnelKey(forward lb.Forward, a netip.Addr) table.BalancerPeerKey {
	return table.BalancerPeerKey{Address: a.As16(), Forward: uint32(slices.Index(forwards(), forward))}
}

// memberTable is the table of the nodes with which services are shared.
type memberTable struct {
	table    *ebpf.Map
	services map[table.BalancerPeerKey]int // of each member
}

func newMemberTable(t *table.Tables) *memberTable {
	return &memberTable{t.Maps.Peers, make(map[table.BalancerPeerKey]int)}
}

// replace gives a service other members and returns those that it has now: after an error
// also some that it should not have. Those that it keeps are never missing.
func (t *memberTable) replace(old, next members) (members, error) {
	var errs []error
	for key, what := range next {
		before, known := old[key]
		if !known {
			t.services[key]++
		}
		if known && before == what || t.services[key] > 1 {
			continue // a node is the same to all services
		}
		if err := t.table.Put(key, what); err != nil {
			errs = append(errs, fmt.Errorf("table peers: %w", err))
			if delete(next, key); !known {
				t.services[key]--
			}
		}
	}
	kept := members{}
	for key, what := range old {
		if _, stays := next[key]; stays {
			continue
		}
		if t.services[key] == 1 {
			if err := table.Delete(t.table, key); err != nil {
				errs = append(errs, fmt.Errorf("table peers: %w", err))
				kept[key] = what
				continue
			}
		}
		if t.services[key]--; t.services[key] == 0 {
			delete(t.services, key)
		}
	}
	maps.Copy(kept, next)
	return kept, errors.Join(errs...)
}

// disown removes the members that an earlier agent left and that no service has.
func (t *memberTable) disown() error {
	err := table.DeleteOthers(t.table, func(key table.BalancerPeerKey) bool { return t.services[key] > 0 })
	if err != nil {
		return fmt.Errorf("table peers: %w", err)
	}
	return nil
}
