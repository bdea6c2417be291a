// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"
	"testing"
)

// tenantsWithoutBalancers is the lab vlan with each router sending straight to its
// tenant's first server: what the balancers would do is left out.
func tenantsWithoutBalancers() Topology {
	topology := VLAN()
	for i := range topology.Hosts {
		h := &topology.Hosts[i]
		switch h.Role {
		case Router:
			h.Neighbours = nil
			for family := range h.Routes {
				h.Routes[family].Gateways = []netip.Addr{addresses(serviceNetwork, serverNumber+1)[family]}
			}
		case Balancer:
			h.Processes = nil
		default:
		}
	}
	for i := range topology.Probes {
		topology.Probes[i].Answers = topology.Probes[i].Answers[:1]
	}
	return topology
}

// Both tenants ask the same addresses; only VLANs keep them apart. Up returns
// only if each was answered by a server of its own, and by no other.
func TestTenantsReachTheirOwnServers(t *testing.T) {
	bringUp(t, newLabs(t), tenantsWithoutBalancers())
}
