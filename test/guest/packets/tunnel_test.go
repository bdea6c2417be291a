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
	ends := map[lb.VIP]map[device]lb.BackendID{} // of the tunnels
	probed := probes{b, "lb1", map[*lb.Service][]string{}}
	for _, c := range []struct {
		name     string
		vip      netip.Addr
		backends []string
		devices  []string // of server1 and server2
	}{
		{"IPv4 in IPv4", tunnelVIPs()[0], over4, []string{"tunl0", "ipip1"}},
		{"IPv6 in IPv4", tunnelVIPs()[1], over4, []string{"sit0", "sit1"}},
		{"IPv4 in IPv6", tunnelVIPs()[2], over6, []string{"ip6tnl0", "ip6tnl1"}},
		{"IPv6 in IPv6", tunnelVIPs()[3], over6, []string{"ip6tnl0", "ip6tnl1"}},
	} {
		for protocol, port := range ports() {
			svc := service(lb.VIP{Address: c.vip, Port: port, Protocol: protocol}, lb.IPIP, c.backends...)
			probed.hosts[svc] = []string{"server1", "server2"}
			ends[svc.VIP] = map[device]lb.BackendID{
				{"server1", c.devices[0]}: svc.Backends[0].ID(),
				{"server2", c.devices[1]}: svc.Backends[1].ID(),
			}
			t.Run(fmt.Sprintf("%s %s", c.name, protocol), func(t *testing.T) {
				b.balance(t, svc)
				reach(t, lab, svc.VIP, "server1", "server2")
				checkTrace(t, lab, "lb1", b, svc)
			})
		}
	}
	t.Run("every packet", func(t *testing.T) { checkDevices(t, lab, b, ends) })
	b.checkExits(t)
	t.Run("probes", func(t *testing.T) { probed.check(t, lab) })
}

// device is a device of a host.
type device struct{ host, name string }

// checkDevices fails the test unless every device has received as many packets
// as the balancer has sent to the backends that end their tunnels with it.
func checkDevices(t *testing.T, lab *netlab.Lab, b balancer, backends map[lb.VIP]map[device]lb.BackendID) {
	t.Helper()
	eventually(t, func() error {
		sent := map[device]uint64{}
		for vip, of := range backends {
			forwarded := b.forwarded(t, vip)
			for d, backend := range of {
				sent[d] += forwarded[backend].Packets
			}
		}
		for d, packets := range sent {
			if got := received(t, lab, d.host, d.name); packets == 0 || got != packets {
				return fmt.Errorf("%s: %d packets sent to it, %d received by %s", d.host, packets, got, d.name)
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
