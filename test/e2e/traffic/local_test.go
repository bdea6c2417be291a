// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// workers is the lab "nodes" with so many nodes, each of which has two pods.
func workers(t *testing.T, forward lb.Forward, nodes int, own bool) netlab.Topology {
	t.Helper()
	topology, err := netlab.Nodes(netlab.NodesOptions{Forward: forward, Nodes: nodes, OwnPods: own})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

// Servers are pods of the balancers' own nodes and of others, in one service: XDP
// sends to the others', the programs at tc to the node's own, and no filter sees
// half a connection.
func TestNATToLocalPods(t *testing.T) {
	t.Parallel()
	const forwarded = "forward_nat+forward_nat_handover"
	l := bringUp(t, "workers", withLines(workers(t, lb.NAT, 3, false)))
	l.checkUnaware(t)
	harness.EachFamily(t, func(t *testing.T, vip string) {
		l.checkFamily(t, forwarded, vip)
		t.Run("bulk", func(t *testing.T) { l.checkBulk(t, vip) })
		t.Run("long datagrams", func(t *testing.T) { l.checkLongDatagrams(t, vip) })
		t.Run("hairpin", func(t *testing.T) { l.checkHairpin(t, vip) })
	})
	t.Run("held", func(t *testing.T) { l.checkHeld(t, forwarded) })
	t.Run("filtered", l.checkNothingInvalid)
}

// watchForwarding returns a check that no node's kernel has forwarded a packet since.
func (l *lab) watchForwarding(t *testing.T) (check func()) {
	before := l.forwarded(t)
	return func() {
		t.Helper()
		for name, packets := range l.forwarded(t) {
			if packets != before[name] {
				t.Errorf("%s: the kernel has forwarded %d packets", name, packets-before[name])
			}
		}
	}
}

// forwarded is how many packets the kernel of each node has forwarded by itself.
func (l *lab) forwarded(t *testing.T) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	for _, h := range l.Hosts(netlab.Balancer) {
		counters := harness.Kernel(t, l.Lab, h.Name)
		counts[h.Name] = counters["IpForwDatagrams"] + counters["Ip6OutForwDatagrams"]
	}
	return counts
}

// checkClientsSeen has servers say who asks.
func (l *lab) checkClientsSeen(t *testing.T) {
	for vip, client := range map[string]string{harness.VIP4: "10.0.1.2", harness.VIP6: "fd00:1::2"} {
		if seen := l.Gets(t, "client", harness.Origin(vip)+"client", 60); seen[client] != 60 {
			t.Errorf("%s: servers have seen %v, want %s", vip, seen, client)
		}
	}
}

// Agents are killed, and pods replaced by others, under load.
func TestNATToLocalPodsThroughChanges(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "workchange", withLines(workers(t, lb.NAT, 3, false)))
	t.Run("killed", func(t *testing.T) { l.checkAllKilled(t, "forward_nat+forward_nat_handover") })
	for _, node := range []string{"1", "2"} {
		t.Run("pod of node "+node+" replaced", func(t *testing.T) { l.checkPodReplaced(t, node) })
	}
}

// A pod's server ends, and is back: its own node finds out.
func TestProbesOfLocalPods(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "workprobe", harness.Checked(workers(t, lb.NAT, 2, false)))
	services := []string{"web", "web6"}
	all := slices.Repeat([]observe.HealthState{observe.HealthHealthy}, len(l.Service("web").Backends))
	l.AwaitHealth(t, services, all...)
	l.KillServer(t, "pod1-1")
	l.AwaitHealth(t, services, append([]observe.HealthState{observe.HealthUnhealthy}, all[1:]...)...)
	l.StartServer(t, "pod1-1")
	l.AwaitHealth(t, services, all...)
}

// checkPodReplaced takes the first pod of a node away with its device, and puts
// another in its place. Connections of other pods don't notice.
func (l *lab) checkPodReplaced(t *testing.T, node string) {
	pod, host, network := "pod"+node+"-1", "lb"+node, "10.244."+node
	network6 := "fd00:244:" + node
	if node == "1" { // as network plugins do for the case that a pod is gone
		l.Run(t, host, "ip", "route", "add", "unreachable", network+".0/24")
		l.Run(t, host, "ip", "-6", "route", "add", "unreachable", network6+"::/64")
	}
	c := l.crowd(t, moved)
	c.leave(pod)
	c.during(t, func(heard func()) {
		heard()
		l.Run(t, host, "ip", "link", "del", "veth1")
		if node == "1" { // a bridge leads to who doesn't answer as to who does
			l.awaitPod(t, host, network+".2", false)
		}
		heard()
		l.addPod(t, node)
		l.awaitPod(t, host, network+".2", true)
		l.awaitPod(t, host, network6+"::2", true)
		heard()
	})
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		if counts := l.connections(t, "client", vip, 200).byServer(); counts[pod] == 0 {
			t.Errorf("%s is back, and has no connection to %s: %v", pod, vip, counts)
		}
	}
}

// addPod leads to a node's first pod again, as network plugins would.
func (l *lab) addPod(t *testing.T, node string) {
	t.Helper()
	pod, host := "pod"+node+"-1", "lb"+node
	own := []string{"10.244." + node + ".2", "fd00:244:" + node + "::2"}
	gateways := []string{"10.244." + node + ".1", "fd00:244:" + node + "::1"}
	l.Run(t, host, "ip", "link", "add", "veth1", "type", "veth", "peer", "name", "eth0", "netns", l.State().Host(pod).Namespace)
	if node == "2" {
		l.Run(t, host, "ip", "link", "set", "veth1", "master", "cni0")
	}
	l.Run(t, host, "ip", "link", "set", "veth1", "up")
	l.Run(t, pod, "ip", "link", "set", "eth0", "up")
	for family, flag := range []string{"-4", "-6"} {
		l.Run(t, pod, "ip", "address", "add", own[family]+map[string]string{"-4": "/32", "-6": "/128"}[flag], "dev", "eth0")
		l.Run(t, pod, "ip", flag, "route", "add", "default", "via", gateways[family], "dev", "eth0", "onlink")
		if node == "1" {
			l.Run(t, host, "ip", "address", "add", gateways[family], "dev", "veth1")
			l.Run(t, host, "ip", flag, "route", "add", own[family], "dev", "veth1")
		}
	}
	if node == "2" { // network plugins announce the MAC address of a pod (gratuitous ARP)
		l.Run(t, host, "ip", "neigh", "flush", "dev", "cni0")
	}
}

// awaitPod waits until a node uses a pod, or doesn't.
func (l *lab) awaitPod(t *testing.T, host, address string, want bool) {
	t.Helper()
	h := l.State().Host(host)
	service := "web"
	if strings.Contains(address, ":") {
		service = "web6"
	}
	harness.Until(t, fmt.Sprintf("%s uses %s: %v", host, address, want), func() bool {
		return harness.Backends(t, h, service)[address].InUse == want
	})
}

// checkNothingInvalid finds that no node has dropped a packet of a connection that
// it knows one half of.
func (l *lab) checkNothingInvalid(t *testing.T) {
	for _, h := range l.Hosts(netlab.Balancer) {
		if said := l.Run(t, h.Name, "nft", "list", "chain", "inet", "filter", "forward"); !strings.Contains(said, "invalid counter packets 0 ") {
			t.Errorf("%s: %s", h.Name, said)
		}
	}
}
