//go:build guest

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// NAT and DSR reach a server behind devices of the kernel to which XDP can't send, and which have
// no link layer: IP in IP, of either family. Answers come back through them.
func TestHandoverToTunnelDevices(t *testing.T) {
	topology := ecmp(t, lb.NAT, 1)
	server := topology.Host(servers[0])
	behind := []netip.Addr{netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("fd00:9::2")}
	server.Loopback = behind
	for i := range server.Processes {
		if echo := &server.Processes[i]; echo.Name == "echo" {
			echo.Args = append(echo.Args, "--listen", "10.9.0.2:7", "--listen", "[fd00:9::2]:7")
		}
	}
	l := bringUp(t, "xdp", "handover", topology)
	l.ip(t, balancer,
		"link add point4 type ipip local 10.0.2.11 remote 10.0.2.101", "link set point4 up",
		"address add 10.9.0.1/24 dev point4",
		"link add point6 type ip6tnl mode ip6ip6 local fd00:2::11 remote fd00:2::101", "link set point6 up",
		"address add fd00:9::1/64 dev point6 nodad")
	l.ip(t, servers[0],
		"link add point4 type ipip local 10.0.2.101 remote 10.0.2.11", "link set point4 up",
		"link add point6 type ip6tnl mode ip6ip6 local fd00:2::101 remote fd00:2::11", "link set point6 up")
	for _, to := range []string{"10.9.0.1", "10.0.1.2"} { // as NAT and DSR have the source
		l.ip(t, servers[0], "route add "+to+" dev point4 src 10.9.0.2")
	}
	for _, to := range []string{"fd00:9::1", "fd00:1::2"} {
		l.ip(t, servers[0], "-6 route add "+to+" dev point6 src fd00:9::2")
	}
	// Tunnels' packets are of no service.
	l.Topology.Host(balancer).Overlays = []netlab.Overlay{{Name: "point4"}, {Name: "point6"}}
	for _, forward := range []lb.Forward{lb.NAT, lb.DSR} {
		t.Run(forward.String(), func(t *testing.T) {
			l.replace(t, l.Changed(func(s *lb.Service) {
				s.Forward, s.Backends[0].Address = forward, behind[family(s.Address)]
			}))
			l.AwaitInUse(t, 1)
			l.CheckPackets(t, "forward_nat_handover", func() { l.checkTraffic(t, noBody, servers[0]) })
			l.checkTraffic(t, upload, servers[0])
		})
	}
}
