// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Real requests in each mode and family: which server answers, by which path, and that no
// packet is lost or damaged.
func TestForward(t *testing.T) {
	t.Parallel()
	for _, forward := range []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve} {
		t.Run(forward.String(), func(t *testing.T) {
			t.Parallel()
			l := bringUp(t, forward.String(), harness.ECMP(t, forward))
			t.Run("native", l.checkNative)
			harness.EachFamily(t, func(t *testing.T, vip string) { l.checkFamily(t, "forward_"+forward.String(), vip) })
		})
	}
}

func (l *lab) checkNative(t *testing.T) {
	for _, h := range l.Hosts(netlab.Balancer) {
		attached := harness.Status(t, &h).DataPlane.Attachments
		if len(attached) != 1 || attached[0].Interface != "eth0" || attached[0].Mode != "native" || attached[0].Adopted {
			t.Errorf("%s: attachments %+v: want eth0, native", h.Name, attached)
		}
	}
}
