// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/netlab"
)

// Two tenants have the same VIPs, ports and protocols in two VXLAN segments: the
// kernels of routers and servers write and read the frames, the balancers pass
// them on, and nobody meets the other tenant's servers.
func TestVXLAN(t *testing.T) {
	l := bringUp(t, "vxlan", netlab.VXLAN("fairlead"))
	l.checkTenants(t, "forward_vxlan")
	t.Run("elsewhere", func(t *testing.T) {
		for vni, exit := range map[uint32]string{5001: "forward_vxlan", 5002: "forward_vxlan", 5003: "pass_not_vip"} {
			l.checkExit(t, fmt.Sprintf("VXLAN %d", vni), l.segmentFrame(t, vni, "10.0.2.11"), exit)
		}
		l.checkExit(t, "VXLAN 5001 to lb2", l.segmentFrame(t, 5001, "10.0.2.12"), "pass_not_vip")
		l.checkExit(t, "no segment", requestFrame(t, l.macOf("lb1"), 0), "pass_not_vip")
	})
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
