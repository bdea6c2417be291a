// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// ServersInVLAN puts the servers of the lab "ecmp" in a VLAN and a network of their own,
// 10.0.4.0/24 and fd00:4::/64, to which the router has a second interface. Balancers have no
// address there: servers answer their probes through the router.
func ServersInVLAN(topology Topology, vlan uint16) Topology {
	move := func(a netip.Addr) netip.Addr { // from 10.0.2.0/24 to 10.0.4.0/24
		b := a.AsSlice()
		if a.Is4() {
			b[2] = 4
		} else {
			b[3] = 4
		}
		moved, _ := netip.AddrFromSlice(b)
		return moved
	}
	router := topology.Host("router")
	port := Interface{Name: "eth2", VLAN: vlan}
	for _, p := range router.Interfaces[1].Addresses {
		port.Addresses = append(port.Addresses, netip.PrefixFrom(move(p.Addr()), p.Bits()))
	}
	PlugRouter(&topology, port)
	n := 0
	for i := range topology.Hosts {
		server := &topology.Hosts[i]
		if server.Role != Server {
			continue
		}
		eth0 := &server.Interfaces[0]
		eth0.VLAN = vlan
		for i, p := range eth0.Addresses {
			eth0.Addresses[i] = netip.PrefixFrom(move(p.Addr()), p.Bits())
			server.Routes[i].Gateways = []netip.Addr{move(server.Routes[i].Gateways[0])}
		}
		for i := range topology.Services {
			b := &topology.Services[i].Backends[n]
			b.Address, b.MAC, b.Segment = move(b.Address), eth0.MAC, lb.Segment{Type: lb.SegmentVLAN, ID: uint32(vlan)}
		}
		n++
	}
	return topology
}

// PlugRouter connects another interface of the router to the switch.
func PlugRouter(topology *Topology, i Interface) {
	Plug(topology, "router", i, "router-"+i.Name)
}

// Plug connects another interface of a host to a new port of the switch.
func Plug(topology *Topology, host string, i Interface, port string) {
	plugged, wiring := topology.Host(host), topology.Host("switch")
	plugged.Interfaces = append(plugged.Interfaces, i)
	wiring.Interfaces = append(wiring.Interfaces, Interface{Name: port})
	topology.Links = append(topology.Links, Link{A: End{Host: host, Interface: i.Name}, B: End{Host: "switch", Interface: port}})
}
