// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// workers is the lab "nodes" with three nodes, each of which has two pods.
func workers(t *testing.T, forward lb.Forward) netlab.Topology {
	t.Helper()
	topology, err := netlab.Nodes(netlab.NodesOptions{Fairlead: "fairlead", Forward: forward, Nodes: 3})
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
	l := bringUp(t, "workers", workers(t, lb.NAT))
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

// Nodes that send to their own pods only, which see the clients' own addresses: not
// a packet of them passes the nodes' filters.
func TestDNATToOwnPods(t *testing.T) {
	const forwarded = "forward_nat_handover"
	topology, err := netlab.Nodes(netlab.NodesOptions{Fairlead: "fairlead", Nodes: 2, Forward: lb.DNAT, OwnPods: true})
	if err != nil {
		t.Fatal(err)
	}
	l := bringUp(t, "keep", topology)
	before := l.forwarded(t)
	for family, vip := range map[string]string{"ipv4": vip4, "ipv6": vip6} {
		t.Run(family, func(t *testing.T) { l.checkFamily(t, forwarded, vip) })
	}
	for name, packets := range l.forwarded(t) {
		if packets != before[name] {
			t.Errorf("%s: the kernel has forwarded %d packets", name, packets-before[name])
		}
	}
	t.Run("filtered", l.checkNothingInvalid)
	t.Run("seen", l.checkClientsSeen)
}

// forwarded is how many packets the kernel of each node has forwarded by itself.
func (l *lab) forwarded(t *testing.T) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	for _, h := range l.hosts(netlab.Balancer) {
		counters, _ := l.kernel(t, h.Name)
		counts[h.Name] = counters["IpForwDatagrams"] + counters["Ip6OutForwDatagrams"]
	}
	return counts
}

// checkClientsSeen has servers say who asks.
func (l *lab) checkClientsSeen(t *testing.T) {
	for vip, client := range map[string]string{vip4: "10.0.1.2", vip6: "fd00:1::2"} {
		if seen := l.gets(t, "client", origin(vip)+"client", 60); seen[client] != 60 {
			t.Errorf("%s: servers have seen %v, want %s", vip, seen, client)
		}
	}
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
