// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"testing"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Two tenants have the same VIPs, ports and protocols in two VLANs, and never
// meet each other's servers.
func TestVLAN(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "vlan", netlab.VLAN())
	l.checkTenants(t, "forward_l2dsr")
}

// The same in two VXLAN segments: the kernels of routers and servers write and read the
// frames, the balancers forward them.
func TestVXLAN(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "vxlan", netlab.VXLAN(0))
	l.checkTenants(t, "forward_vxlan")
}

// checkTenants has both tenants served, one after the other and at once.
func (l *lab) checkTenants(t *testing.T, forwarded string) {
	for _, tenant := range []string{"red", "blue"} {
		for _, vip := range []string{harness.VIP4, harness.VIP6} {
			t.Run(tenant+"/"+vip, func(t *testing.T) {
				l.CheckPackets(t, forwarded, func() { l.checkTenant(t, "client-"+tenant, "server-"+tenant, vip) })
			})
		}
	}
	t.Run("at once", func(t *testing.T) {
		l.CheckPackets(t, forwarded, func() {
			red := l.Load(t, "client-red", harness.LoadLimit, harness.Origin(harness.VIP4))
			blue := l.Load(t, "client-blue", harness.LoadLimit, "-H", "Connection: close", harness.Origin(harness.VIP4))
			l.awaitAllBalancers(t, forwarded)
			red.End(t)
			blue.End(t)
		})
	})
}

// checkTenant checks that a client's requests are answered by both of its tenant's servers
// and by no other.
func (l *lab) checkTenant(t *testing.T, client, prefix, vip string) {
	t.Helper()
	answers := l.Gets(t, client, harness.Origin(vip), 300)
	if answers[prefix+"1"] < 30 || answers[prefix+"2"] < 30 || answers[prefix+"1"]+answers[prefix+"2"] != 300 {
		t.Errorf("%s: 300 requests to %s are answered by %v", client, vip, answers)
	}
	l.checkEcho(t, client, vip, prefix)
}
