// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"slices"

	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
)

// roundOf is the service's round of nodes as this one sees it: which comes next, and
// how many others there are (bpf/ask.h). Every node has to see the same round, so
// nodes are in the order of what all of them know of each other: their MAC addresses
// on the network between them.
//
// Nodes whose backends have all gone down are left out, as one of them may be dead. One
// whose backends haven't been up yet isn't: others may know already that they are. But if
// nobody is left, it is rather this node that sees nobody, having just come back for
// example: then they are asked all the same, as they know their connections.
func roundOf(slots []slot) balancerRound {
	up := nodesWith(slots, (*slot).usable)
	down := nodesWith(slots, func(s *slot) bool { return s.wasUsable && !s.usable() })
	round := roundAmong(slots, func(s *slot) bool { return up[s.relayWay()] || !down[s.relayWay()] })
	if round.Nodes == 0 {
		round = roundAmong(slots, func(*slot) bool { return true })
	}
	for i := range slots {
		if slots[i].backend.Node.IsValid() && errors.Is(slots[i].unreached, nexthop.ErrPending) {
			round.Pending = 1
		}
	}
	return round
}

// roundAmong is the round of those nodes to which packets can be relayed and that have
// such a backend.
func roundAmong(slots []slot, such func(*slot) bool) (round balancerRound) {
	var nodes []uint64
	nearest := uint64(1) << 48
	for i := range slots {
		one := &slots[i]
		if !one.has(balancerBackendFlagBACKEND_RELAY) || !such(one) {
			continue
		}
		way := macBehind(one.Destination, one.Source)
		if !slices.Contains(nodes, way) {
			nodes = append(nodes, way)
		}
		if way < nearest {
			nearest, round.Next = way, uint16(i)
		}
	}
	round.Nodes = uint8(min(len(nodes), int(balancerRoundLimitROUND_NODES)))
	return round
}

// macBehind is how far a MAC address comes behind another one, on a circle of all.
func macBehind(address, other [6]byte) uint64 {
	return (macNumber(address) - macNumber(other)) & (1<<48 - 1)
}

func macNumber(address [6]byte) uint64 {
	var n uint64
	for _, octet := range address {
		n = n<<8 | uint64(octet)
	}
	return n
}
