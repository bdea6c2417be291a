// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

func TestBackendSuitsEveryMode(t *testing.T) {
	vip := lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.UDP}
	for _, mode := range []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve} {
		svc := &lb.Service{Name: "web", VIP: vip, Forward: mode, MinHealthy: 1,
			Backends: []lb.Backend{Backend(mode, netip.MustParseAddr("10.0.2.21"))}}
		if wrong := svc.Check(); len(wrong) > 0 {
			t.Errorf("%s: %v", mode, wrong)
		}
	}
}
