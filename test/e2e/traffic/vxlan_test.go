// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Two tenants have the same VIPs, ports and protocols in two VXLAN segments: the
// kernels of routers and servers write and read the frames, the balancers
// forward them, and no client reaches the other tenant's servers.
func TestVXLAN(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "vxlan", netlab.VXLAN(0))
	l.checkTenants(t, "forward_vxlan")
	t.Run("elsewhere", func(t *testing.T) {
		for vni, exit := range map[uint32]string{5001: "forward_vxlan", 5002: "forward_vxlan", 5003: "pass_not_vip"} {
			l.checkExit(t, fmt.Sprintf("VXLAN %d", vni), l.segmentFrame(t, vni, "10.0.2.11"), exit)
		}
		l.checkExit(t, "VXLAN 5001 to lb2", l.segmentFrame(t, 5001, "10.0.2.12"), "pass_not_vip")
		l.checkExit(t, "no segment", requestFrame(t, l.macOf("lb1"), 0), "pass_not_vip")
	})
}

// Every link carries 1500 bytes: what fits into a segment is less, clients learn
// from their routers how much, and full packets of that size arrive.
func TestVXLANOfFullSize(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "vxlan1500", netlab.VXLAN(1500))
	for tenant, mtu := range map[string]int{"red": 1450, "blue": 1430} {
		for _, vip := range []string{harness.VIP4, harness.VIP6} {
			t.Run(tenant+"/"+vip, func(t *testing.T) {
				client := "client-" + tenant
				l.sendDatagram(t, client, vip, 1450)
				harness.Until(t, "the client knows what fits", func() bool { return l.pathMTU(t, client, vip) == mtu })
				l.checkUpload(t, client, vip)
			})
		}
	}
}

// segmentFrame is requestFrame in a segment, sent to a tunnel end point.
func (l *lab) segmentFrame(t *testing.T, vni uint32, end string) []byte {
	t.Helper()
	stack := []gopacket.SerializableLayer{
		&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: l.macOf("lb1"), EthernetType: layers.EthernetTypeIPv4},
	}
	stack = append(stack, datagram(t, net.IP{10, 0, 2, 1}, net.ParseIP(end), 4789)...)
	stack = append(stack, &layers.VXLAN{ValidIDFlag: true, VNI: vni}, gopacket.Payload(requestFrame(t, l.macOf("lb1"), 0)))
	return build(t, stack...)
}
