// SPDX-License-Identifier: Apache-2.0

package xdp

import "fairlead.io/fairlead/internal/lb"

// relayWay is the way of relayed packets to another node.
type relayWay struct {
	ifindex uint32
	vlan    uint16
	mac     [6]byte
}

func (s *slot) relayWay() relayWay { return relayWay{s.Ifindex, s.Vlan, s.Destination} }

// abandon makes backends that have left the service unusable if they are on a node that
// seems to be dead: of its backends that are there still, or were until now, one has gone
// down, and none is up. Nobody checks the health of those that have left, and the
// kernel believes in a silent neighbour for up to a minute; meanwhile segments whose
// record is on another balancer would go to them, and those that are asked around to
// their node (bpf/ask.h). Nodes are told apart by how they are reached, as nothing
// else is known of backends that an earlier agent left.
func abandon(slots []slot, present map[lb.BackendID]bool) {
	up, down := map[relayWay]bool{}, map[relayWay]bool{}
	for i := range slots {
		one := &slots[i]
		if !one.has(balancerBackendFlagBACKEND_RELAY) {
			continue
		}
		if one.backend.Down && one.wasUsable {
			down[one.relayWay()] = true
		}
		if one.usable() && present[one.id()] {
			up[one.relayWay()] = true
		}
	}
	for i := range slots {
		one := &slots[i]
		if one.taken() && one.has(balancerBackendFlagBACKEND_RELAY) && !present[one.id()] && down[one.relayWay()] && !up[one.relayWay()] {
			one.Flags &^= uint8(balancerBackendFlagBACKEND_USABLE)
		}
	}
}
