// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// The networks of every topology are 10.0.N.0/24 and fd00:N::/64.
const (
	clientNetwork  = 1
	serviceNetwork = 2
	tenantNetwork  = 3 // within a tenant's segment
	beyondNetwork  = 4 // of a node that is on no switch
)

// The numbers of hosts in their networks. In both families they read the same:
// server 1 is 10.0.2.101 and fd00:2::101.
const (
	routerNumber   = 1
	clientNumber   = 2
	balancerNumber = 10  // and up: the first balancer is 11
	serverNumber   = 100 // and up

	// In the service network:
	reflectorNumber = 2
	foreignNumber   = 3 // an announcer that isn't Fairlead's
)

// Most balancers and servers for which there are numbers.
const (
	MaxBalancers = 80
	MaxServers   = 100
)

// Interfaces are called by the kernel's custom: eth0 is a host's first, and the
// router's second, eth1, is the one to the switch.
const (
	eth0 = "eth0"
	eth1 = "eth1"
	eth2 = "eth2"
)

// switchName is the switch of every topology that is drawn here.
const switchName = "switch"

// drawing is a topology with one switch that is being made.
type drawing struct {
	Topology
	wiring Host // the switch
}

func newDrawing(name string) *drawing {
	return &drawing{Topology: Topology{Name: name}, wiring: Host{Name: switchName, Role: Switch}}
}

// plug joins a new interface of the host to a port of the switch that is named
// for the host.
func (d *drawing) plug(h *Host, i Interface, mtu int) {
	h.Interfaces = append(h.Interfaces, i)
	d.wiring.Interfaces = append(d.wiring.Interfaces, Interface{Name: h.Name})
	d.Links = append(d.Links, Link{A: End{h.Name, i.Name}, B: End{switchName, h.Name}, MTU: mtu})
}

// finish returns the topology with its switch.
func (d *drawing) finish() Topology {
	d.Hosts = append(d.Hosts, d.wiring)
	return d.Topology
}

// balancer draws the nth balancer, which balances all services drawn so far.
// Its address is in the untagged service network.
func (d *drawing) balancer(fairlead string, n, mtu int) {
	h := d.unplugged(fairlead, n)
	d.plug(&h, Interface{
		Name:      eth0,
		MAC:       balancerMAC(n),
		Addresses: networkAddresses(serviceNetwork, balancerNumber+n),
	}, mtu)
	d.Hosts = append(d.Hosts, h)
}

// unplugged is the nth balancer, without any interface.
func (d *drawing) unplugged(fairlead string, n int) Host {
	name := balancerName(n)
	var ends []netip.Addr
	if slices.ContainsFunc(d.Services, func(s lb.Service) bool { return s.Segment.Overlay() }) {
		ends = addresses(serviceNetwork, balancerNumber+n)
	}
	return Host{
		Name: name, Role: Balancer,
		Agent:     &AgentSettings{Node: name, TunnelEnds: ends, Services: d.Services},
		Processes: []Process{agent(fairlead)},
		Socket:    agentSocket,
	}
}

func balancerName(n int) string { return fmt.Sprintf("lb%d", n) }

func balancerMAC(n int) lb.MAC { return lb.MAC{0x02, 0, 0, 0, balancerNumber, byte(n)} }

// vips returns the virtual addresses of every topology: 10.1.1.1 and
// fd00:10:1:1::1.
func vips() []netip.Addr { return vipsOf(1) }

// vipsOf returns the nth pair of virtual addresses: 10.1.N.1 and fd00:10:1:N::1.
func vipsOf(n int) []netip.Addr {
	return []netip.Addr{
		netip.AddrFrom4([4]byte{10, 1, byte(n), 1}),
		netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 5: 1, 7: byte(n), 15: 1}),
	}
}

// hostPrefix is the prefix of one address.
func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// addresses returns a host's addresses in a network: IPv4, then IPv6. The
// decimal digits of the number are the hexadecimal ones of the IPv6 address.
func addresses(network, number int) []netip.Addr {
	hundreds, rest := number/100, number%100
	return []netip.Addr{
		netip.AddrFrom4([4]byte{10, 0, byte(network), byte(number)}),
		netip.AddrFrom16([16]byte{
			0: 0xfd, 3: byte(network),
			14: byte(hundreds), 15: byte(rest/10<<4 | rest%10),
		}),
	}
}

// networkAddresses returns addresses with the lengths of their networks.
func networkAddresses(network, number int) []netip.Prefix {
	a := addresses(network, number)
	return []netip.Prefix{netip.PrefixFrom(a[0], 24), netip.PrefixFrom(a[1], 64)}
}

// defaultRoutes leads everything to the router of a network.
func defaultRoutes(network int) []Route {
	gateway := addresses(network, routerNumber)
	return []Route{
		{Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gateways: gateway[:1]},
		{Destination: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Gateways: gateway[1:]},
	}
}
