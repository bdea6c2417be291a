// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// Ports of the services of every topology.
const (
	webPort  = 80
	echoPort = 7 // RFC 862

	// ownWebPort is nginx's where servers serve at addresses of their own: another
	// one than the service's, so that ports are translated too.
	ownWebPort = 8080
)

// site is one tenant of a topology: a client, its router and its servers, on the same
// switch and balancers as other tenants. Sites have equal addresses, but different MAC
// addresses and VLANs or segments.
type site struct {
	// peering teaches the router its routes to the VIPs, in the untagged network only.
	peering
	// tenant ends the names of hosts and services; empty if there is only one.
	tenant string
	// vlan is the site's network beyond its router; 0 is the untagged one.
	vlan uint16
	// overlay is set instead if the site's network is a VXLAN segment.
	overlay *overlayNetwork
}

// sited is a site without a tenant.
func sited(o ECMPOptions) site { return site{peering: peering{ECMPOptions: o}} }

// draw adds the site's hosts, services and probes.
func (s *site) draw(d *drawing) {
	s.client(d)
	s.router(d)
	for n := range s.Servers {
		s.server(d, n+1)
	}
	s.services(d)
}

// services draws the services of all balancers, then the services of some.
func (s *site) services(d *drawing) {
	for _, port := range s.EchoPorts {
		s.service(d, fmt.Sprintf("port%d-echo", port), lb.UDP, port, vips())
		s.service(d, fmt.Sprintf("port%d-lines", port), lb.TCP, port, vips())
	}
	if len(s.EchoPorts) > 0 {
		return
	}
	s.service(d, "web", lb.TCP, webPort, vips())
	s.service(d, "echo", lb.UDP, echoPort, vips())
	if s.Second > 0 {
		s.service(d, "second", lb.TCP, webPort, vipsOf(2))
	}
}

// offer is a pair of VIPs and the names of their balancers.
type offer struct {
	vips []netip.Addr
	by   []string
}

// offers are all of the site.
func (s *site) offers() []offer {
	var names []string
	for n := range s.Balancers {
		names = append(names, balancerName(n+1))
	}
	first := offer{vips(), names}
	if s.Foreign {
		first.by = append(slices.Clone(names), foreignName)
	}
	all := []offer{first}
	if s.Second > 0 {
		all = append(all, offer{vipsOf(2), names[:s.Second]})
	}
	if s.Foreign {
		all = append(all, offer{vipsOf(foreignVIPs), []string{foreignName}})
	}
	return all
}

// vips returns the servers' VIPs.
func (s *site) vips() []netip.Addr {
	if s.Second > 0 {
		return append(vips(), vipsOf(2)...)
	}
	return vips()
}

// named returns for example "client", or "client-red".
func (s *site) named(kind string) string {
	if s.tenant == "" {
		return kind
	}
	return kind + "-" + s.tenant
}

func (s *site) serverName(n int) string { return fmt.Sprintf("%s%d", s.named("server"), n) }

// mac numbers the site's interfaces in the service network.
func (s *site) mac(number int) lb.MAC {
	network := uint32(s.vlan)
	if s.overlay != nil {
		network = s.overlay.id
	}
	return lb.MAC{0x02, 0, byte(network >> 8), byte(network), serverNumber, byte(number)}
}

// client draws the client and its link to the router.
func (s *site) client(d *drawing) {
	d.Hosts = append(d.Hosts, Host{
		Name: s.named("client"), Role: Client,
		Interfaces: []Interface{{Name: eth0, Addresses: networkAddresses(clientNetwork, clientNumber)}},
		Routes:     defaultRoutes(clientNetwork),
	})
	d.Links = append(d.Links, Link{A: End{s.named("client"), eth0}, B: End{s.named("router"), eth0}})
}

// router draws the router, which spreads the VIPs over the balancers. In a VLAN or a
// segment it has permanent neighbour entries for balancers.
func (s *site) router(d *drawing) {
	network, device, number := serviceNetwork, eth1, routerNumber
	h := Host{
		Name: s.named("router"), Role: Router,
		Interfaces: []Interface{{Name: eth0, Addresses: networkAddresses(clientNetwork, routerNumber)}},
	}
	if s.overlay != nil {
		network, device, number = tenantNetwork, vx0, s.overlay.routerEnd()
		h.Overlays = []Overlay{s.routerDevice()}
	}
	if s.speaks() {
		s.configure(&h)
		d.Learned = s.learned(h.Name)
	} else {
		s.routeVIPs(&h, network, device)
	}
	d.plug(&h, Interface{
		Name:      eth1,
		MAC:       s.mac(0),
		Addresses: networkAddresses(serviceNetwork, number),
		VLAN:      s.vlan,
	}, s.routerMTU())
	d.Hosts = append(d.Hosts, h)
}

// learned are the routes that the router learns.
func (s *site) learned(router string) []LearnedRoute {
	var routes []LearnedRoute
	for _, o := range s.offers() {
		for _, vip := range o.vips {
			routes = append(routes, LearnedRoute{Host: router, Prefix: hostPrefix(vip), Via: o.by})
		}
	}
	return routes
}

// routeVIPs adds static routes to the VIPs.
func (s *site) routeVIPs(h *Host, network int, device string) {
	for _, o := range s.offers() {
		for family, vip := range o.vips {
			route := Route{Destination: hostPrefix(vip)}
			for n := range o.by {
				gateway := addresses(network, balancerNumber+n+1)[family]
				route.Gateways = append(route.Gateways, gateway)
				if s.segment().Tagged() {
					h.Neighbours = append(h.Neighbours, Neighbour{device, gateway, balancerMAC(n + 1)})
				}
			}
			h.Routes = append(h.Routes, route)
		}
	}
}

// server draws the nth server. Except with NAT it has the VIPs and answers directly.
func (s *site) server(d *drawing, n int) {
	name := s.serverName(n)
	number := serverNumber + n
	h := Host{
		Name: name, Role: Server,
		Loopback: s.vips(),
		Overlays: s.serverDevices(n),
		Routes:   defaultRoutes(s.network()),
		Files:    map[string]string{nginxConfig: nginxText(name, s.serverPort(webPort))},
	}
	served := s.vips()
	if s.Forward.Translates() {
		h.Loopback, served = nil, addresses(serviceNetwork, number)
	}
	h.Processes = []Process{nginx(), echo(name, served)}
	if len(s.EchoPorts) > 0 {
		h.Processes = []Process{echo(name, served, s.EchoPorts...)}
	}
	if s.overlay != nil {
		number = s.overlay.serverEnd(n)
	}
	if s.Forward == lb.IPIP || s.Forward == lb.GUE {
		h.Processes = append(h.Processes, tunnelEnd(s.vips(), networkAddresses(serviceNetwork, serverNumber+n)))
	}
	end := Interface{
		Name:      eth0,
		MAC:       s.mac(n),
		Addresses: networkAddresses(serviceNetwork, number),
		VLAN:      s.vlan,
	}
	if s.Forward == lb.Geneve {
		end.Geneve = firstVNI
	}
	d.plug(&h, end, s.MTU)
	d.Hosts = append(d.Hosts, h)
}

// service draws a service of both families, served by all servers: "web" and
// "web6", or "web-red" and "web6-red".
func (s *site) service(d *drawing, name string, protocol lb.Protocol, port uint16, at []netip.Addr) {
	for family, vip := range at {
		service := lb.Service{
			Name:       s.named([]string{name, name + "6"}[family]),
			VIP:        lb.VIP{Address: vip, Port: port, Protocol: protocol, Segment: s.segment()},
			Forward:    s.Forward,
			MinHealthy: 1,
		}
		probe := Probe{From: s.named("client"), Protocol: protocol, Address: netip.AddrPortFrom(vip, port)}
		for n := range s.Servers {
			service.Backends = append(service.Backends, s.backend(n+1, family, port))
			probe.Answers = append(probe.Answers, s.serverName(n+1))
		}
		if s.Foreign && at[0] == vips()[0] {
			probe.Answers = append(probe.Answers, foreignName)
		}
		d.Services = append(d.Services, service)
		if protocol == lb.UDP || len(s.EchoPorts) == 0 {
			d.Probes = append(d.Probes, probe)
		}
	}
}

// serverPort is the servers' port for a VIP's port.
func (s *site) serverPort(port uint16) uint16 {
	if s.Forward.Translates() && port == webPort {
		return ownWebPort
	}
	return port
}

func (s *site) segment() lb.Segment {
	switch {
	case s.overlay != nil:
		return lb.Segment{Type: lb.SegmentVXLAN, ID: s.overlay.id}
	case s.vlan != 0:
		return lb.Segment{Type: lb.SegmentVLAN, ID: uint32(s.vlan)}
	default:
		return lb.Segment{}
	}
}

// network returns the number of the network of router, balancers and servers.
func (s *site) network() int {
	if s.overlay != nil {
		return tenantNetwork
	}
	return serviceNetwork
}

// routerMTU returns the MTU of the router's link to the switch.
func (s *site) routerMTU() int {
	if s.overlay != nil {
		return s.MTU
	}
	return 0
}

// backend is the nth server. Balancers have no interface in a VLAN to resolve its MAC
// address, which is configured there.
func (s *site) backend(n, family int, port uint16) lb.Backend {
	b := lb.Backend{Address: addresses(s.network(), serverNumber+n)[family], Port: s.serverPort(port), Weight: 1}
	switch {
	case s.Forward.Overlay() != lb.SegmentUnset:
		s.behindTunnel(&b, n)
	case s.vlan != 0:
		b.MAC, b.Segment = s.mac(n), s.segment()
	}
	return b
}
