// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/netlab"
)

// workers is the lab "nodes" with three nodes, each of which has two pods.
func workers(t *testing.T) netlab.Topology {
	t.Helper()
	topology, err := netlab.Nodes(netlab.NodesOptions{Fairlead: "fairlead", Nodes: 3})
	if err != nil {
		t.Fatal(err)
	}
	return withLines(topology)
}

// Servers are pods of the balancers' own nodes and of others, in one service: XDP
// sends to the others', the programs at tc to the node's own, and no filter sees
// half a connection.
func TestNATToLocalPods(t *testing.T) {
	const forwarded = "forward_nat+forward_nat_handover"
	l := bringUp(t, "workers", workers(t))
	l.checkUnaware(t)
	for family, vip := range map[string]string{"ipv4": vip4, "ipv6": vip6} {
		t.Run(family, func(t *testing.T) {
			l.checkFamily(t, forwarded, vip)
			t.Run("bulk", func(t *testing.T) { l.checkBulk(t, vip) })
			t.Run("hairpin", func(t *testing.T) { l.checkHairpin(t, vip) })
		})
	}
	t.Run("held", func(t *testing.T) { l.checkHeld(t, forwarded) })
	t.Run("filtered", l.checkNothingInvalid)
}

// checkNothingInvalid finds that no node has dropped a packet of a connection that
// it knows one half of.
func (l *lab) checkNothingInvalid(t *testing.T) {
	for _, h := range l.hosts(netlab.Balancer) {
		if said := l.run(t, h.Name, "nft", "list", "chain", "inet", "filter", "forward"); !strings.Contains(said, "invalid counter packets 0 ") {
			t.Errorf("%s: %s", h.Name, said)
		}
	}
}
