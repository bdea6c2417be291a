//go:build guest

// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// Tunnels end at the kernel's devices, however an operator has made them:
// server1 switches on those that the modules bring along, which take packets
// from any sender for any address; server2 has devices for its own address.
func TestTunnelDevices(t *testing.T) {
	lab := bringUp(t,
		host(client, netlab.Client, 1, "10.0.2.2/24", "fd00:2::2/64"),
		host("lb1", netlab.Balancer, 2, "10.0.2.11/24", "fd00:2::11/64"),
		tunnelServer("server1", 3, "10.0.2.101/24", "fd00:2::101/64"),
		tunnelServer("server2", 4, "10.0.2.102/24", "fd00:2::102/64"),
	)
	useFallbackDevices(t, lab, "server1")
	addTunnelDevices(t, lab, "server2", "10.0.2.102", "fd00:2::102")
	for _, server := range []string{"server1", "server2"} {
		serve(t, lab, server, tunnelVIPs()...)
	}
	addRoutes(t, lab, client, map[string]string{"10.1.1.0/24": "10.0.2.11", "fd00:10:1:1::/64": "fd00:2::11"})
	b := openBalancer(t, lab, "lb1")

	over4, over6 := []string{"10.0.2.101", "10.0.2.102"}, []string{"fd00:2::101", "fd00:2::102"}
	for _, c := range []struct {
		name     string
		vip      netip.Addr
		backends []string
		devices  map[string]string // by host
	}{
		{"IPv4 in IPv4", tunnelVIPs()[0], over4, map[string]string{"server1": "tunl0", "server2": "ipip1"}},
		{"IPv6 in IPv4", tunnelVIPs()[1], over4, map[string]string{"server1": "sit0", "server2": "sit1"}},
		{"IPv4 in IPv6", tunnelVIPs()[2], over6, map[string]string{"server1": "ip6tnl0", "server2": "ip6tnl1"}},
		{"IPv6 in IPv6", tunnelVIPs()[3], over6, map[string]string{"server1": "ip6tnl0", "server2": "ip6tnl1"}},
	} {
		for protocol, port := range ports() {
			t.Run(fmt.Sprintf("%s %s", c.name, protocol), func(t *testing.T) {
				svc := service(lb.VIP{Address: c.vip, Port: port, Protocol: protocol}, lb.IPIP, c.backends...)
				checkTunnel(t, lab, b, svc, c.devices)
			})
		}
	}
	b.checkExits(t)
}

// checkTunnel fails the test unless both servers answer, and what the balancer
// has sent to each is what has come out of its tunnel device.
func checkTunnel(t *testing.T, lab *netlab.Lab, b balancer, svc *lb.Service, devices map[string]string) {
	t.Helper()
	b.balance(t, svc)
	before := map[string]uint64{}
	for server, device := range devices {
		before[server] = received(t, lab, server, device)
	}
	reach(t, lab, svc.VIP, "server1", "server2")
	eventually(t, func() error {
		sent := b.forwarded(t, svc.VIP)
		for i, server := range []string{"server1", "server2"} {
			sent, got := sent[svc.Backends[i].ID()].Packets, received(t, lab, server, devices[server])-before[server]
			if sent == 0 || sent != got {
				return fmt.Errorf("%s: %d packets sent to it, %d received by %s", server, sent, got, devices[server])
			}
		}
		return nil
	})
}

// tunnelVIPs are an address for each combination of families.
func tunnelVIPs() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("fd00:10:1:1::1"),
		netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("fd00:10:1:1::2"),
	}
}

func tunnelServer(name string, number byte, addresses ...string) netlab.Host {
	h := host(name, netlab.Server, number, addresses...)
	h.Loopback = tunnelVIPs()
	return h
}
