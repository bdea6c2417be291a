// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// pods is the lab "pods" with three balancers and three nodes.
func pods(t *testing.T) netlab.Topology {
	t.Helper()
	topology, err := netlab.Pods(netlab.PodsOptions{Balancers: 3, Nodes: 3})
	if err != nil {
		t.Fatal(err)
	}
	return withLines(topology)
}

// Servers are pods behind VXLAN devices, to which XDP can't send: the programs
// at the network stack's doors do.
func TestNATIntoOverlay(t *testing.T) {
	t.Parallel()
	const forwarded = "forward_nat_handover"
	l := bringUp(t, "pods", pods(t))
	l.checkUnaware(t)
	harness.EachFamily(t, func(t *testing.T, vip string) {
		l.checkFamily(t, forwarded, vip)
		t.Run("bulk", func(t *testing.T) { l.checkBulk(t, vip) })
		t.Run("mtu", func(t *testing.T) { l.checkLearnedMTU(t, "client", vip, 1450) })
		t.Run("long datagrams", func(t *testing.T) { l.checkLongDatagrams(t, vip) })
	})
	t.Run("held", func(t *testing.T) { l.checkHeld(t, forwarded) })
	t.Run("hairpin", l.checkPodsAskThemselves)
}

// Changes under load, and the end.
func TestNATIntoOverlayThroughChanges(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "podchange", pods(t))
	t.Run("killed", func(t *testing.T) { l.checkAllKilled(t, "forward_nat_handover") })
	t.Run("drained", l.checkDrained)
	t.Run("removed", l.checkHandoverRemoved)
}

// checkPodsAskThemselves has pods ask the VIPs: other pods answer, and the one
// that asks. The router has to know where pods are, to whom it sends answers.
func (l *lab) checkPodsAskThemselves(t *testing.T) {
	for n := range l.Hosts(netlab.Server) {
		for family, network := range map[string]string{"-4": "10.244.%d.0/24", "-6": "fd00:244:%d::/64"} {
			node := map[string]string{"-4": "10.0.2.10%d", "-6": "fd00:2::10%d"}[family]
			l.Run(t, "router", "ip", family, "route", "add", fmt.Sprintf(network, n+1), "via", fmt.Sprintf(node, n+1))
		}
	}
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		l.checkHairpin(t, vip)
	}
}

// checkHandoverRemoved stops an agent: the filters stay, and "agent --remove"
// takes them away, at both ends. A new agent puts them back.
func (l *lab) checkHandoverRemoved(t *testing.T) {
	h := l.State().Host("lb1")
	agent := l.Process(t, h.Name, "agent")
	if err := l.Stop(t.Context(), h.Name, "agent"); err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{"eth0", "flannel.1"} {
		if n := l.filters(t, h.Name, device); n != 1 {
			t.Errorf("%s has %d filters without an agent, want 1", device, n)
		}
	}
	l.Run(t, h.Name, append(slices.Clone(agent.Args), "--remove")...)
	for _, device := range []string{"eth0", "flannel.1"} {
		if n := l.filters(t, h.Name, device); n != 0 {
			t.Errorf("%s has %d filters, want none after the removal", device, n)
		}
	}
	l.StartAgent(t, h)
	l.connections(t, "client", harness.VIP4, 60).speak(t)
}

// filters counts the tc filters of a host's interface for packets that come in.
func (l *lab) filters(t *testing.T, host, device string) int {
	t.Helper()
	count := 0
	err := l.Do(host, func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		filters, err := netlink.FilterList(link, netlink.HANDLE_MIN_INGRESS)
		count = len(filters)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}
