// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

// peerLookup decides on packets of other nodes' sessions: it lists the nodes, in order, to
// which a packet without a session on this node is relayed, and the backend of this node
// that gets a new flow relayed here.
type peerLookup struct{ flagged }

func (peerLookup) describe(*lb.Service) {}

func (peerLookup) option(o *table.Options, slots []slot, _ *table.Options) {
	o.PeerLookup, o.Local = lookupOrder(slots), newestLocal(slots)
}

// newestLocal is the slot of this node's newest usable backend, plus 1. Other nodes may
// have found it healthy, and relay flows to it, while this node's health check is still to
// succeed and no ring entry has it.
func newestLocal(slots []slot) (local uint16) {
	for i := range slots {
		one := &slots[i]
		if !one.usable() || one.has(table.BalancerBackendFlagBACKEND_RELAY) || one.adopted() || !one.backend.Own() {
			continue
		}
		if local == 0 || int16(one.Generation-slots[local-1].Generation) > 0 {
			local = uint16(i + 1)
		}
	}
	return local
}

// lookupOrder is the service's order of nodes as this one sees it: which comes next, and
// how many others there are (bpf/translate/lookup.h). Every node has to use the same order, so
// nodes are ordered by their MAC addresses on the network between them.
//
// Nodes whose backends have all gone down are left out, as the node may be dead; those
// whose backends have never been up are not, as other nodes may already see them up. If
// no node is left, this node is more likely the one that is cut off, for example just
// after it returned: then all are used, as they know their connections.
func lookupOrder(slots []slot) table.BalancerPeerLookup {
	up := nodesWith(slots, (*slot).usable)
	down := nodesWith(slots, func(s *slot) bool { return s.wasUsable && !s.usable() })
	order := orderAmong(slots, func(s *slot) bool { return up[s.relayHop()] || !down[s.relayHop()] })
	if order.Peers == 0 {
		order = orderAmong(slots, func(*slot) bool { return true })
	}
	for i := range slots {
		if !slots[i].adopted() && slots[i].backend.Node.IsValid() && errors.Is(slots[i].hopErr, nexthop.ErrPending) {
			order.Pending = 1
		}
	}
	return order
}

// orderAmong is the order of those nodes to which packets can be relayed and that have
// such a backend.
func orderAmong(slots []slot, such func(*slot) bool) (order table.BalancerPeerLookup) {
	nodes := make(map[uint64]struct{})
	nearest := uint64(1) << 48
	for i := range slots {
		one := &slots[i]
		if !one.has(table.BalancerBackendFlagBACKEND_RELAY) || !such(one) {
			continue
		}
		way := macBehind(one.Destination, one.Source)
		nodes[way] = struct{}{}
		if way < nearest {
			nearest, order.Next = way, uint16(i)
		}
	}
	order.Peers = uint8(min(len(nodes), int(table.BalancerPeerLookupLimitPEER_LOOKUP_MAX)))
	return order
}

// macBehind is how far a MAC address comes behind another one, on a circle of all.
func macBehind(address, other [6]byte) uint64 {
	return (macNumber(address) - macNumber(other)) & (1<<48 - 1)
}

func macNumber(address [6]byte) uint64 {
	return uint64(binary.BigEndian.Uint16(address[:]))<<32 | uint64(binary.BigEndian.Uint32(address[2:]))
}

// relayHop is the next hop of packets that are relayed to another node. It identifies
// the node, as nothing else is known of backends that an earlier agent left.
type relayHop struct {
	ifindex uint32
	vlan    uint16
	mac     [6]byte
}

func (s *slot) relayHop() relayHop { return relayHop{s.Ifindex, s.Vlan, s.Destination} }

// nodesWith are the nodes to which packets are relayed and that have such a backend.
func nodesWith(slots []slot, such func(*slot) bool) map[relayHop]bool {
	nodes := make(map[relayHop]bool)
	for i := range slots {
		if one := &slots[i]; one.has(table.BalancerBackendFlagBACKEND_RELAY) && such(one) {
			nodes[one.relayHop()] = true
		}
	}
	return nodes
}

// disableDeadNodes makes backends that have left the service unusable if they are on a
// node that seems to be dead: of its backends, in this version or the one before, one is
// down and none is up. The health of backends that have left isn't checked, and the
// kernel keeps the entry of a silent neighbour for up to a minute; meanwhile packets
// whose record is on another balancer would be sent there, and peer lookups to their
// node (bpf/translate/lookup.h).
func disableDeadNodes(slots []slot) {
	down := nodesWith(slots, func(s *slot) bool { return !s.adopted() && s.backend.Down && s.wasUsable })
	up := nodesWith(slots, func(s *slot) bool { return s.usable() && !s.left })
	for i := range slots {
		one := &slots[i]
		if one.left && one.has(table.BalancerBackendFlagBACKEND_RELAY) && down[one.relayHop()] && !up[one.relayHop()] {
			one.Flags &^= uint8(table.BalancerBackendFlagBACKEND_USABLE)
		}
	}
}

// disableFormerNodes makes backends that have left a service unusable if their node doesn't have the
// service any more: it neither balances it nor has another backend. The kernel of such a node
// would reset connections that only came by way of it, because of a record or a peer lookup.
func disableFormerNodes(slots []slot, svc *lb.Service) {
	if len(svc.Balancers) == 0 {
		return
	}
	has := map[netip.Addr]bool{}
	for _, a := range svc.Balancers {
		has[a] = true
	}
	for _, b := range svc.Backends {
		has[b.Node] = true
	}
	for i := range slots {
		one := &slots[i]
		if one.left && one.has(table.BalancerBackendFlagBACKEND_RELAY) && !one.adopted() && !has[one.backend.Node] {
			one.Flags &^= uint8(table.BalancerBackendFlagBACKEND_USABLE)
		}
	}
}
