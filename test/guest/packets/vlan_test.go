//go:build guest

// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// Tags that the balancer writes, takes off and changes are those of the
// kernel's VLAN devices. lb1 reaches tagged backends by routes through VLAN
// devices of its own; lb2 has none; its configuration has the segment and the MAC
// address. Servers answer through the router.
func TestVLANDevices(t *testing.T) {
	type override struct {
		mac     lb.MAC
		segment lb.Segment
	}
	cases := []struct {
		name     string
		balancer string
		from     int // the client's network
		forward  lb.Forward
		server   string
		told     override
	}{
		{"keep", "lb1", red, lb.L2DSR, "server-red", override{}},
		{"change as routed", "lb1", red, lb.L2DSR, "server-blue", override{}},
		{"change as configured", "lb2", red, lb.L2DSR, "server-blue", override{mac(blueServer), segment(blue)}},
		{"push", "lb1", untagged, lb.L2DSR, "server-blue", override{}},
		{"pop", "lb1", red, lb.L2DSR, "server", override{segment: lb.Segment{Type: lb.SegmentNone}}},
		{"tunnel", "lb1", red, lb.IPIP, "server-blue", override{}},
	}
	lab := bringUpVLANs(t, len(cases))
	balancers := map[string]balancer{"lb1": openBalancer(t, lab, "lb1"), "lb2": openBalancer(t, lab, "lb2")}
	probed := map[string]probes{}
	for name, b := range balancers {
		probed[name] = probes{b, name, map[*lb.Service][]string{}}
	}
	for i, c := range cases {
		b, server := balancers[c.balancer], vlanServers()[c.server]
		for family, vip := range vlanVIPs(i) {
			gateway := vlanAddress(c.from, vlanBalancers()[c.balancer])[family].Addr()
			addRoutes(t, lab, client, map[string]string{netip.PrefixFrom(vip, vip.BitLen()).String(): gateway.String()})
			for protocol, port := range ports() {
				t.Run(fmt.Sprintf("%s %s IPv%d", c.name, protocol, 4+2*family), func(t *testing.T) {
					svc := service(lb.VIP{Address: vip, Port: port, Protocol: protocol, Segment: segment(c.from)}, c.forward,
						vlanAddress(server.network, server.number)[family].Addr().String())
					svc.Backends[0].MAC, svc.Backends[0].Segment = c.told.mac, c.told.segment
					checkVLAN(t, lab, b, svc, c.server, deviceOf(server.network))
					probed[c.balancer].hosts[svc] = []string{c.server}
				})
			}
		}
	}
	for name, b := range balancers {
		b.checkExits(t)
		t.Run("probes of "+name, func(t *testing.T) { probed[name].check(t, lab) })
	}
}

// checkVLAN fails the test unless the server answers, and what the balancer has
// sent to it has come in by the device.
func checkVLAN(t *testing.T, lab *netlab.Lab, b balancer, svc *lb.Service, server, device string) {
	t.Helper()
	b.balance(t, svc)
	before := received(t, lab, server, device)
	reach(t, lab, svc.VIP, server)
	sent := b.forwarded(t, svc.VIP)[svc.Backends[0].ID()].Packets
	eventually(t, func() error {
		// Neighbours are asked for by the same device.
		if got := received(t, lab, server, device) - before; sent == 0 || got < sent {
			return fmt.Errorf("%d packets sent to %s, %d received by %s", sent, server, got, device)
		}
		return nil
	})
}
