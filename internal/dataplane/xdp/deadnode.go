// SPDX-License-Identifier: Apache-2.0

package xdp

import "fairlead.io/fairlead/internal/lb"

// relayWay is the way of relayed packets to another node. Nodes are told apart by it,
// as nothing else is known of backends that an earlier agent left.
type relayWay struct {
	ifindex uint32
	vlan    uint16
	mac     [6]byte
}

func (s *slot) relayWay() relayWay { return relayWay{s.Ifindex, s.Vlan, s.Destination} }

// nodesWith are the nodes to which packets are relayed and that have such a backend.
func nodesWith(slots []slot, such func(*slot) bool) map[relayWay]bool {
	nodes := make(map[relayWay]bool)
	for i := range slots {
		if one := &slots[i]; one.has(balancerBackendFlagBACKEND_RELAY) && such(one) {
			nodes[one.relayWay()] = true
		}
	}
	return nodes
}

// abandon makes backends that have left the service unusable if they are on a node that
// seems to be dead: of its backends that are there still, or were until now, one has gone
// down, and none is up. Nobody checks the health of those that have left, and the
// kernel believes in a silent neighbour for up to a minute; meanwhile segments whose
// record is on another balancer would go to them, and those that are asked around to
// their node (bpf/ask.h).
func abandon(slots []slot, present map[lb.BackendID]bool) {
	down := nodesWith(slots, func(s *slot) bool { return s.backend.Down && s.wasUsable })
	up := nodesWith(slots, func(s *slot) bool { return s.usable() && present[s.id()] })
	for i := range slots {
		one := &slots[i]
		if one.taken() && one.has(balancerBackendFlagBACKEND_RELAY) && !present[one.id()] && down[one.relayWay()] && !up[one.relayWay()] {
			one.Flags &^= uint8(balancerBackendFlagBACKEND_USABLE)
		}
	}
}
