//go:build guest

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"maps"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Requests of curl and datagrams reach nginx and an echo server through an agent, whose
// program runs in the driver. A server that fails leaves and comes back, and what is
// programmed works without the agent.
func TestXDP(t *testing.T) {
	for _, forward := range []lb.Forward{lb.L2DSR, lb.IPIP, lb.NAT} {
		t.Run(forward.String(), func(t *testing.T) {
			l := bringUp(t, "xdp", forward)
			l.checkNode(t)
			l.checkTraffic(t)
			l.checkFailure(t)
			lb1 := l.State().Host(balancer)
			l.KillAgent(t, lb1, "agent")
			l.checkTraffic(t)
		})
	}
}

// checkNode checks that nothing is missing on the balancer and that XDP is native.
func (l lab) checkNode(t *testing.T) {
	t.Helper()
	t.Log(l.Run(t, balancer, "fairlead", "preflight", "--config", netlab.AgentFile))
	attached := harness.Status(t, l.State().Host(balancer)).DataPlane.Attachments
	if len(attached) != 1 || attached[0].Mode != "native" {
		t.Errorf("attachments %+v, want one that is native", attached)
	}
}

// checkTraffic checks that both servers answer, over TCP and UDP and both families.
func (l lab) checkTraffic(t *testing.T) {
	t.Helper()
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		l.curl(t, vip, servers...)
		answers := harness.ByServer(l.Echo(t, client, vip, harness.Ports(16)))
		if got := slices.Sorted(maps.Keys(answers)); !slices.Equal(got, servers) {
			t.Errorf("%s: datagrams are answered by %v", vip, answers)
		}
	}
}

// checkFailure checks that a server without nginx gets no requests, until nginx is back.
func (l lab) checkFailure(t *testing.T) {
	t.Helper()
	l.KillServer(t, servers[0])
	l.AwaitInUse(t, 1)
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		l.curl(t, vip, servers[1])
	}
	l.StartServer(t, servers[0])
	l.AwaitInUse(t, 2)
}
