// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Prefixes of the two services in the lab "balancer-pods".
var (
	podsOfWeb    = []string{"10.1.1.0/24", "fd00:10:1:1::/64"}
	podsOfSecond = []string{"10.1.2.0/24", "fd00:10:1:2::/64"}
)

// Balancers that are pods with an address of their node's network of pods only, two services'
// on overlapping nodes: the router has the tables 6.2 a, b and c of the dissertation, and no
// connection breaks as pods start and stop.
func TestBalancerPods(t *testing.T) {
	t.Parallel()
	harness.NeedRoot(t)
	topology, err := netlab.BalancerPods(netlab.BalancerPodsOptions{Nodes: 3, Second: 2, Servers: 3})
	if err != nil {
		t.Fatal(err)
	}
	l := bringUp(t, "balancer-pods", patient(topology))
	l.stopAgents(t, "web1", "web3", "second1", "second2", "lb4")
	l.checkTable(t, podsOfWeb, gateways{"node2"})
	l.checkTable(t, podsOfSecond, nil)

	var loads []*harness.Load
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		loads = append(loads, l.Load(t, "client", harness.LoadLimit, harness.Origin(vip)))
	}
	l.startAgents(t, "web1", "web3")
	l.checkTable(t, podsOfWeb, gateways{"node1", "node2", "node3"})
	l.checkForwarding(t, "web", "web1", "web2", "web3")
	l.startAgents(t, "second1", "second2")
	l.checkTable(t, podsOfWeb, gateways{"node1", "node2", "node3"})
	l.checkTable(t, podsOfSecond, gateways{"node2", "node3"})
	l.Gets(t, "client", harness.Origin("10.1.2.1"), 20)
	l.Gets(t, "client", harness.Origin("fd00:10:1:2::1"), 20)
	l.checkForwarding(t, "second", "second1", "second2")
	// The same service by a balancer in its node's own namespace (figure 7.4).
	l.startAgents(t, "lb4")
	l.checkTable(t, podsOfWeb, gateways{"lb4", "node1", "node2", "node3"})
	l.checkForwarding(t, "web", "web1", "web2", "web3", "lb4")

	l.stopAgents(t, "web1", "web2", "lb4")
	l.checkTable(t, podsOfWeb, gateways{"node3"})
	l.checkTable(t, podsOfSecond, gateways{"node2", "node3"})
	for _, load := range loads {
		t.Logf("%d requests answered", load.End(t))
	}
	l.checkUndisturbed(t, "web3", "second1", "second2")
}

// With NAT, answers come back to the pod's address: requests through every pod and the
// balancer in its node's namespace are answered.
func TestBalancerPodsNAT(t *testing.T) {
	t.Parallel()
	harness.NeedRoot(t)
	topology, err := netlab.BalancerPods(netlab.BalancerPodsOptions{Forward: lb.NAT, Nodes: 2, Second: 1, Servers: 2})
	if err != nil {
		t.Fatal(err)
	}
	l := bringUp(t, "balancer-pods-nat", topology)
	load := l.Load(t, "client", harness.LoadLimit, harness.Origin(harness.VIP4))
	l.checkForwarding(t, "web", "web1", "web2", "lb3")
	l.checkForwarding(t, "second", "second1")
	load.End(t)
}

func (l *lab) stopAgents(t *testing.T, hosts ...string) {
	t.Helper()
	for _, h := range hosts {
		if err := l.Stop(t.Context(), h, "agent"); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *lab) startAgents(t *testing.T, hosts ...string) {
	t.Helper()
	for _, h := range hosts {
		if err := l.Restart(t.Context(), h, "agent"); err != nil {
			t.Fatal(err)
		}
	}
}

// checkForwarding sends requests until each of the balancers has forwarded packets of a
// service, of both families, by the XDP mode of its placement.
func (l *lab) checkForwarding(t *testing.T, service string, balancers ...string) {
	t.Helper()
	origins := []string{harness.Origin(harness.VIP4), harness.Origin(harness.VIP6)}
	if service == "second" {
		origins = []string{harness.Origin("10.1.2.1"), harness.Origin("fd00:10:1:2::1")}
	}
	for family, name := range []string{service, service + "6"} {
		for _, balancer := range balancers {
			h := l.State().Host(balancer)
			harness.Until(t, balancer+" forwards packets of "+name, func() bool {
				l.Gets(t, "client", origins[family], 20)
				return harness.Services(t, h)[name].Traffic.Packets > 0
			})
		}
	}
	for _, balancer := range balancers {
		want := "generic"
		if strings.HasPrefix(balancer, "lb") {
			want = "native"
		}
		if a := harness.Status(t, l.State().Host(balancer)).DataPlane.Attachments; len(a) != 1 || a[0].Mode != want {
			t.Errorf("%s: attachments %+v, want one in mode %s", balancer, a, want)
		}
	}
}
