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

// The numbers of hosts in their networks, equal in both families: server 1 is
// 10.0.2.101 and fd00:2::101.
const (
	routerNumber   = 1
	clientNumber   = 2
	balancerNumber = 10  // and up: the first balancer is 11
	serverNumber   = 100 // and up

	// In the service network:
	reflectorNumber = 2
	foreignNumber   = 3 // an announcer that isn't Fairlead's
)

// Limits of the numbers.
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

const switchName = "switch"

// drawing is an unfinished topology with one switch.
type drawing struct {
	Topology
	wiring Host // the switch
}

func newDrawing(name string) *drawing {
	return &drawing{Topology: Topology{Name: name}, wiring: Host{Name: switchName, Role: Switch}}
}

// plug connects a new interface of the host to a port of the switch, which has the
// host's name.
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

// balancer draws the nth balancer with all services drawn so far, in the untagged
// service network, and returns it until the next host is drawn.
func (d *drawing) balancer(n, mtu int) *Host {
	h := d.unplugged(n)
	d.plug(&h, Interface{
		Name:      eth0,
		MAC:       balancerMAC(n),
		Addresses: networkAddresses(serviceNetwork, balancerNumber+n),
	}, mtu)
	return d.draw(h)
}

// draw adds a host and returns it until the next one is drawn.
func (d *drawing) draw(h Host) *Host {
	d.Hosts = append(d.Hosts, h)
	return &d.Hosts[len(d.Hosts)-1]
}

// servicesAt are the services of some VIPs.
func (d *drawing) servicesAt(vips []netip.Addr) []lb.Service {
	return slices.DeleteFunc(slices.Clone(d.Services), func(s lb.Service) bool { return !slices.Contains(vips, s.Address) })
}

// unplugged is the nth balancer without interfaces.
func (d *drawing) unplugged(n int) Host {
	name := balancerName(n)
	var ends []netip.Addr
	var peers []netip.Prefix
	if slices.ContainsFunc(d.Services, func(s lb.Service) bool { return s.Segment.Overlay() }) {
		ends = addresses(serviceNetwork, balancerNumber+n)
		for _, own := range networkAddresses(serviceNetwork, balancerNumber+n) {
			peers = append(peers, own.Masked())
		}
	}
	return Host{
		Name: name, Role: Balancer,
		Agent:     &AgentSettings{Node: name, TunnelEnds: ends, TunnelPeers: peers, Services: d.Services},
		Processes: []Process{agent()},
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

// hostAddresses are the addresses of prefixes.
func hostAddresses(prefixes []netip.Prefix) []netip.Addr {
	var all []netip.Addr
	for _, p := range prefixes {
		all = append(all, p.Addr())
	}
	return all
}

// hostPrefixes are the prefixes of single addresses.
func hostPrefixes(all []netip.Addr) (prefixes []netip.Prefix) {
	for _, a := range all {
		prefixes = append(prefixes, hostPrefix(a))
	}
	return prefixes
}

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
func defaultRoutes(network int) []Route { return defaultVia(addresses(network, routerNumber), "") }

// defaultVia leads everything to a gateway of both families, through a device if the
// gateway is outside of its networks.
func defaultVia(gateway []netip.Addr, device string) (routes []Route) {
	for family, all := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		routes = append(routes, Route{Destination: netip.PrefixFrom(all, 0), Gateways: gateway[family : family+1], Device: device})
	}
	return routes
}

// within returns an error if a topology is to have another number of hosts than it can.
func within(topology string, number int, hosts string, low, high int) error {
	if number < low || number > high {
		return fmt.Errorf("topology %s: %d %s: want %d to %d", topology, number, hosts, low, high)
	}
	return nil
}

// firstVNI is the identifier of the first segment of every topology.
const firstVNI = 5001

// vx0 is a host's device in its tenant's segment.
const vx0 = "vx0"

// overlayNetwork is a site's network in a VXLAN segment over the service network.
type overlayNetwork struct {
	id uint32
	// family of the tunnels' ends: 0 is IPv4, 1 is IPv6.
	family int
	// tenant and servers number the site's router and servers in the service network:
	// 0 and 0 for the first site.
	tenant, servers int
}

// overlayMAC numbers the hosts of a segment.
func overlayMAC(id uint32, number int) lb.MAC {
	return lb.MAC{0x02, 1, byte(id >> 8), byte(id), serverNumber, byte(number)}
}

// routerEnd and serverEnd are numbers in the service network.
func (o *overlayNetwork) routerEnd() int      { return routerNumber + o.tenant }
func (o *overlayNetwork) serverEnd(n int) int { return serverNumber + o.servers + n }

// end is the tunnel end point of a host with that number.
func (o *overlayNetwork) end(number int) netip.Addr {
	return addresses(serviceNetwork, number)[o.family]
}

// mtu is the segment's MTU over links with the MTU carrier (RFC 7348, section 5),
// defaultMTU at most.
func (o *overlayNetwork) mtu(carrier int) int {
	headers := []int{50, 70}[o.family]
	return min(carrier-headers, defaultMTU)
}

// routerDevice is the router's VXLAN device, with entries for the balancers, which
// don't send to it.
func (s *site) routerDevice() Overlay {
	o := s.overlay
	device := Overlay{
		Name: vx0, ID: o.id, Local: o.end(o.routerEnd()), MAC: overlayMAC(o.id, 0), MTU: o.mtu(s.MTU),
		Addresses: networkAddresses(tenantNetwork, routerNumber),
	}
	for n := range s.Servers {
		device.Members = append(device.Members, o.end(o.serverEnd(n+1)))
	}
	for n := range s.Balancers {
		device.Stations = append(device.Stations, Station{balancerMAC(n + 1), o.end(balancerNumber + n + 1)})
	}
	return device
}

// serverDevices are the nth server's VXLAN devices: in its tenant's segment or, if only
// balancers tunnel, one for each address family.
func (s *site) serverDevices(n int) []Overlay {
	switch o := s.overlay; {
	case o != nil:
		return []Overlay{{
			Name: vx0, ID: o.id, Local: o.end(o.serverEnd(n)), MAC: overlayMAC(o.id, n), MTU: o.mtu(s.MTU),
			Addresses: networkAddresses(tenantNetwork, serverNumber+n),
			Members:   []netip.Addr{o.end(o.routerEnd())},
		}}
	case s.Forward == lb.VXLAN:
		var devices []Overlay
		for family, name := range []string{"vx4", "vx6"} {
			devices = append(devices, Overlay{
				Name: name, ID: firstVNI, Local: addresses(serviceNetwork, serverNumber+n)[family], MAC: overlayMAC(firstVNI, n),
			})
		}
		return devices
	default:
		return nil
	}
}

// behindTunnel sets the tunnel end point of a backend. A Geneve end has no device: inner
// frames are for the interface.
func (s *site) behindTunnel(b *lb.Backend, n int) {
	if s.overlay != nil {
		b.TunnelEnd, b.MAC = s.overlay.end(s.overlay.serverEnd(n)), overlayMAC(s.overlay.id, n)
		return
	}
	b.TunnelEnd, b.MAC = b.Address, overlayMAC(firstVNI, n)
	if s.Forward == lb.Geneve {
		b.MAC = s.mac(n)
	}
	b.Segment = lb.Segment{Type: s.Forward.Overlay(), ID: firstVNI}
}
