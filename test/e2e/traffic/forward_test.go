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
		t.Run(forward.String(), func(t *testing.T) { checkForward(t, "native", "forward_"+forward.String(), harness.ECMP(t, forward)) })
	}
}

// The same in every mode with the program in the network stack, as with network cards whose
// driver has no XDP.
func TestForwardGeneric(t *testing.T) {
	t.Parallel()
	for _, forward := range []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve, lb.NAT, lb.DSR} {
		t.Run(forward.String(), func(t *testing.T) {
			if forward == lb.DSR {
				checkForward(t, "generic", dsrForwarded, workers(t, lb.DSR, 3, false))
			} else {
				checkForward(t, "generic", "forward_"+forward.String(), harness.ECMP(t, forward))
			}
		})
	}
}

// checkForward sends requests in a lab whose programs are attached in that mode.
func checkForward(t *testing.T, mode, forwarded string, topology netlab.Topology) {
	t.Parallel()
	if mode == "generic" {
		topology.SetXDPMode(mode)
	}
	l := bringUp(t, mode+"-"+topology.Services[0].Forward.String(), topology)
	l.checkMode(t, mode)
	harness.EachFamily(t, func(t *testing.T, vip string) { l.checkFamily(t, forwarded, vip) })
}

// checkMode checks where the program is attached.
func (l *lab) checkMode(t *testing.T, mode string) {
	t.Helper()
	for _, h := range l.Hosts(netlab.Balancer) {
		attached := harness.Status(t, &h).DataPlane.Attachments
		if len(attached) != 1 || attached[0].Interface != "eth0" || attached[0].Mode != mode || attached[0].Adopted {
			t.Errorf("%s: attachments %+v: want eth0, %s", h.Name, attached, mode)
		}
	}
}
