// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// dnatForwarded is the way to a pod by its own node. Of what other nodes relay the
// books know from there.
const dnatForwarded = "forward_nat_handover"

// Nodes that share a service's pods, and relay to each other: pods see the clients,
// and answers pass nobody but the pod's node.
func TestDNAT(t *testing.T) {
	l := bringUp(t, "dnat", withLines(workers(t, lb.DNAT, 3, false)))
	l.checkUnaware(t)
	before := l.forwarded(t)
	for family, vip := range map[string]string{"ipv4": vip4, "ipv6": vip6} {
		t.Run(family, func(t *testing.T) {
			l.checkFamily(t, dnatForwarded, vip)
			t.Run("bulk", func(t *testing.T) { l.checkBulk(t, vip) })
		})
	}
	for name, packets := range l.forwarded(t) {
		if packets != before[name] {
			t.Errorf("%s: the kernel has forwarded %d packets", name, packets-before[name])
		}
	}
	t.Run("seen", l.checkClientsSeen)
	t.Run("hairpin", func(t *testing.T) {
		l.checkHairpin(t, vip4)
		l.checkHairpin(t, vip6)
	})
	t.Run("held", func(t *testing.T) { l.checkHeld(t, dnatForwarded) })
	t.Run("filtered", l.checkNothingInvalid)
}

// Connections outlive whatever becomes of the nodes by which they come in, and of
// others' pods.
func TestDNATThroughChanges(t *testing.T) {
	l := bringUp(t, "dnatchange", withLines(workers(t, lb.DNAT, 3, false)))
	t.Run("rerouted", l.checkRerouted)
	t.Run("killed", func(t *testing.T) { l.checkAllKilled(t, dnatForwarded) })
	t.Run("drained", l.checkDrained)
	t.Run("rerouted after changes", l.checkRerouted)
}

// A node is lost, and all connections but those to its own pods go on.
func TestDNATWithoutANode(t *testing.T) {
	l := bringUp(t, "dnatlost", withLines(workers(t, lb.DNAT, 3, false)))
	l.checkNodeLost(t)
}

// spread has the router spread the VIPs over some balancers.
func (l *lab) spread(t *testing.T, balancers ...string) {
	t.Helper()
	for family, vip := range []string{vip4, vip6} {
		r := netlab.Route{Destination: netip.PrefixFrom(netip.MustParseAddr(vip), netip.MustParseAddr(vip).BitLen())}
		for _, name := range balancers {
			own := l.topology.Host(name).Interfaces
			i := slices.IndexFunc(own, func(i netlab.Interface) bool { return i.Name == "eth0" })
			r.Gateways = append(r.Gateways, own[i].Addresses[family].Addr())
		}
		if err := l.Reroute("router", r); err != nil {
			t.Fatal(err)
		}
	}
}

// checkRerouted changes by which nodes packets come, again and again, under load.
func (l *lab) checkRerouted(t *testing.T) {
	l.account(t, dnatForwarded, func() {
		for _, c := range l.crowds(t) {
			c.during(t, func(heard func()) {
				for _, by := range [][]string{{"lb1"}, {"lb2", "lb3"}, {"lb3"}, {"lb2"}, {"lb3", "lb1"}, {"lb1", "lb2", "lb3"}} {
					l.spread(t, by...)
					heard()
				}
			})
			c.close()
		}
	})
}

// checkNodeLost takes a node off the network: connections to other nodes' pods go
// on, and new ones begin.
func (l *lab) checkNodeLost(t *testing.T) {
	crowds := l.crowds(t)
	for _, c := range crowds {
		c.members = slices.DeleteFunc(c.members, func(m *member) bool {
			if !strings.HasPrefix(m.server, "pod3-") {
				return false
			}
			_ = m.Close()
			return true
		})
		c.speak(t)
	}
	if err := l.Cut("lb3"); err != nil {
		t.Fatal(err)
	}
	l.spread(t, "lb1", "lb2")
	for _, c := range crowds {
		c.speak(t)
		c.during(t, func(heard func()) { heard() })
	}
}
