// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Every link carries 1500 bytes, so clients' full packets don't fit with the
// outer headers: the balancers say what does (RFC 1191, RFC 8201), and uploads
// arrive all the same.
func TestPathMTU(t *testing.T) {
	t.Parallel()
	for forward, overhead := range map[lb.Forward]map[string]int{
		lb.IPIP:   {harness.VIP4: 20, harness.VIP6: 40},
		lb.GUE:    {harness.VIP4: 32, harness.VIP6: 52},
		lb.VXLAN:  {harness.VIP4: 50, harness.VIP6: 70},
		lb.Geneve: {harness.VIP4: 50, harness.VIP6: 70},
	} {
		t.Run(forward.String(), func(t *testing.T) {
			t.Parallel()
			topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: forward, MTU: 1500, Balancers: 3, Servers: 2})
			if err != nil {
				t.Fatal(err)
			}
			l := bringUp(t, forward.String()+"1500", topology)
			harness.EachFamily(t, func(t *testing.T, vip string) {
				l.checkUpload(t, "client", vip)
				if got, want := l.pathMTU(t, "client", vip), 1500-overhead[vip]; got != want {
					t.Errorf("the client takes %d for the MTU to %s, want %d", got, vip, want)
				}
			})
			answers := uint64(0)
			for _, h := range l.Hosts(netlab.Balancer) {
				answers += harness.ExitsOf(t, &h)["answer_too_big"]
			}
			if answers == 0 {
				t.Error("no balancer has answered a packet that was too big")
			}
		})
	}
}
