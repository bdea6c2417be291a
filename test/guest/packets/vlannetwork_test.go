//go:build guest

// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// The networks of bringUpVLANs by their VLAN ids.
const (
	untagged = 0
	red      = 100
	blue     = 200
)

// Numbers of hosts in their networks.
const (
	routerNumber = 1
	clientNumber = 2
	blueServer   = 101
)

// member is a host in one network.
type member struct {
	network int
	number  byte
}

func vlanServers() map[string]member {
	return map[string]member{"server": {untagged, 103}, "server-red": {red, 102}, "server-blue": {blue, blueServer}}
}

// vlanBalancers are the balancers' numbers, the same in every network.
func vlanBalancers() map[string]byte { return map[string]byte{"lb1": 11, "lb2": 12} }

// vlanAddress is a host's address in a network: IPv4, then IPv6.
func vlanAddress(network int, number byte) []netip.Prefix {
	return prefixes(vlanTexts(network, number)...)
}

func vlanTexts(network int, number byte) []string {
	return []string{fmt.Sprintf("10.%d.0.%d/24", network, number), fmt.Sprintf("fd00:%d::%d/64", network, number)}
}

// vlanVIPs are the VIPs of a case: IPv4, then IPv6.
func vlanVIPs(number int) []netip.Addr {
	return []netip.Addr{
		netip.AddrFrom4([4]byte{10, 1, 1, byte(number + 1)}),
		netip.MustParseAddr(fmt.Sprintf("fd00:10:1:1::%d", number+1)),
	}
}

// segment is a network as configurations name it.
func segment(network int) lb.Segment {
	if network == untagged {
		return lb.Segment{}
	}
	return lb.Segment{Type: lb.SegmentVLAN, ID: uint32(network)}
}

// deviceOf is the device by which a host is in a network.
func deviceOf(network int) string {
	if network == untagged {
		return port
	}
	return vlanDevice(network)
}

// bringUpVLANs brings up a switch with three networks: a client in the untagged
// one and in red, a router and a balancer in all of them, a balancer that is
// only in the untagged one, and a server in each. The servers have so many
// pairs of VIPs.
func bringUpVLANs(t *testing.T, vips int) *netlab.Lab {
	t.Helper()
	hosts := []netlab.Host{
		host(client, netlab.Client, clientNumber, vlanTexts(untagged, clientNumber)...),
		host("router", netlab.Router, routerNumber, vlanTexts(untagged, routerNumber)...),
	}
	for name, number := range vlanBalancers() {
		hosts = append(hosts, host(name, netlab.Balancer, number, vlanTexts(untagged, number)...))
	}
	var loopback []netip.Addr
	for i := range vips {
		loopback = append(loopback, vlanVIPs(i)...)
	}
	for name, server := range vlanServers() {
		h := host(name, netlab.Server, server.number)
		if server.network == untagged {
			h = host(name, netlab.Server, server.number, vlanTexts(untagged, server.number)...)
		}
		h.Loopback = loopback
		hosts = append(hosts, h)
	}
	lab := bringUp(t, hosts...)
	joinVLANs(t, lab)
	startVLANServers(t, lab, loopback)
	return lab
}

// joinVLANs makes the VLAN devices of all hosts but the servers.
func joinVLANs(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	addVLAN(t, lab, client, red, vlanTexts(red, clientNumber)...)
	for _, id := range []int{red, blue} {
		addVLAN(t, lab, "router", id, vlanTexts(id, routerNumber)...)
		addVLAN(t, lab, "lb1", id, vlanTexts(id, vlanBalancers()["lb1"])...)
	}
	// lb2 has no address in red by which the client could find it.
	within(t, lab, client, func() error {
		device, err := netlink.LinkByName(vlanDevice(red))
		if err != nil {
			return err
		}
		number := vlanBalancers()["lb2"]
		hardware := mac(number)
		for _, a := range vlanAddress(red, number) {
			err := netlink.NeighSet(&netlink.Neigh{
				LinkIndex: device.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: a.Addr().AsSlice(), HardwareAddr: hardware[:],
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// startVLANServers puts the servers into their networks and starts them.
func startVLANServers(t *testing.T, lab *netlab.Lab, vips []netip.Addr) {
	t.Helper()
	for name, server := range vlanServers() {
		if server.network != untagged {
			addVLAN(t, lab, name, server.network, vlanTexts(server.network, server.number)...)
		}
		router := vlanAddress(server.network, routerNumber)
		addRoutes(t, lab, name, map[string]string{
			"0.0.0.0/0": router[0].Addr().String(),
			"::/0":      router[1].Addr().String(),
		})
		useFallbackDevices(t, lab, name)
		serve(t, lab, name, vips...)
	}
}
