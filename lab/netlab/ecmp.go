// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"fmt"

	"fairlead.io/fairlead/internal/lb"
)

// An IPv6 link carries at least 1280 bytes (RFC 8200 §5); 9000 is the largest MTU of
// Ethernet in practice.
const (
	minMTU = 1280
	maxMTU = 9000
)

// tunnelMTU carries a packet of defaultMTU with the outer headers of any mode.
const tunnelMTU = 1600

// ECMPOptions are options of the lab "ecmp".
type ECMPOptions struct {
	// Forward is any mode. Servers decapsulate IPIP and GUE by "fairlead node", VXLAN by
	// kernel devices and Geneve by lab/wire.
	Forward lb.Forward
	// MTU of the links to balancers and servers in bytes. 0 is 1500 or, in modes
	// that tunnel, enough for clients' full packets with outer headers.
	MTU int
	// Balancers is their number, 1 to MaxBalancers, Servers 1 to MaxServers.
	Balancers, Servers int
	// Second is the number of balancers, the first ones, that also serve a second pair
	// of VIPs.
	Second int
	// Router is the router's BGP implementation; with "" its routes are static, and the
	// fields below must not be set.
	Router RouterKind
	// GoBGPD is the gobgpd that a GoBGP router runs: Debian's is too old for FRR's
	// zebra, "go build -modfile=tools/go.mod" builds another. "" is the one in PATH.
	GoBGPD string
	// Reflector puts a BGP route reflector between the router and the balancers.
	Reflector bool
	// Dynamic makes the router accept any balancer ("dynamic neighbours").
	Dynamic bool
	// PeerIPv6 uses IPv6 for all BGP sessions.
	PeerIPv6 bool
	// Foreign adds a server that announces VIPs by ExaBGP.
	Foreign bool
	// EchoPorts, if there are any, replace the services: at each port an echo service for TCP
	// and one for UDP. Servers run nothing else.
	EchoPorts []uint16
	// Networks has the router take the networks of VIPs too, for balancers that aggregate.
	Networks bool
}

// ECMP is a client behind a router that spreads two VIPs, one for each address
// family, over balancers by equal-cost routes. The servers answer through the
// router, past the balancers; with lb.NAT, where they see connections of the
// balancer's address, through the balancer:
//
//	client ── router ── switch ─┬─ lb1, lb2 …
//	                            └─ server1, server2 …
//
// The client's network is 10.0.1.0/24 and fd00:1::/64, the others' is
// 10.0.2.0/24 and fd00:2::/64. The services are "web" (TCP port 80) and "echo"
// (UDP port 7) at 10.1.1.1, "web6" and "echo6" at fd00:10:1:1::1. With lb.NAT
// nginx listens at port 8080 of the servers' own addresses.
//
// The second pair of VIPs is 10.1.2.1 and fd00:10:1:2::1, with the services
// "second" and "second6" (TCP port 80).
//
// With a Router the balancers, of AS 65021, announce the VIPs to the router, of AS
// 65000, over IPv4 for both families, with BFD. With a Reflector all speakers are of AS
// 65021, and peer only with the host "reflector", 10.0.2.2. A Foreign speaker is the
// host "exabgp", 10.0.2.3, which serves and announces the first pair of VIPs, and
// 10.1.9.1 and fd00:10:1:9::1. The lab is up when the router has all learned routes.
func ECMP(o ECMPOptions) (Topology, error) {
	switch o.Forward {
	case lb.L2DSR, lb.NAT:
	case lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve:
		o.MTU = cmp.Or(o.MTU, tunnelMTU)
	default:
		return Topology{}, fmt.Errorf("topology ecmp: forwarding mode %s: want l2dsr, ipip, gue, vxlan, geneve or nat", o.Forward)
	}
	if o.MTU != 0 && (o.MTU < minMTU || o.MTU > maxMTU) {
		return Topology{}, fmt.Errorf("topology ecmp: mtu %d is not in %d to %d", o.MTU, minMTU, maxMTU)
	}
	err := cmp.Or(
		within("ecmp", o.Balancers, "balancers", 1, MaxBalancers),
		within("ecmp", o.Servers, "servers", 1, MaxServers),
		within("ecmp", o.Second, "balancers of the second VIPs", 0, o.Balancers))
	if err != nil {
		return Topology{}, err
	}
	only := sited(o)
	if err := only.check(); err != nil {
		return Topology{}, fmt.Errorf("topology ecmp: %w", err)
	}
	return only.ecmp(), nil
}

// ecmp draws the whole topology.
func (s *site) ecmp() Topology {
	d := newDrawing("ecmp")
	s.draw(d)
	if s.Foreign {
		s.foreignSpeaker(d)
	}
	if s.Reflector {
		s.reflector(d)
	}
	for n := range s.Balancers {
		h := d.balancer(n+1, s.MTU)
		h.Routes = defaultRoutes(serviceNetwork)
		if s.speaks() {
			h.Agent.BGP = s.announcer(balancerNumber+n+1, false)
		}
		if n >= s.Second {
			h.Agent.Services = d.servicesAt(vips())
		}
	}
	return d.finish()
}

// VLAN is two tenants that have the same VIPs, and the same addresses
// everywhere, in VLANs 100 (red) and 200 (blue) of one switch. Two balancers
// serve both:
//
//	client-red ── router-red ── switch ─┬─ lb1, lb2
//	client-blue ─ router-blue ──┘       └─ server-red1, …, server-blue2
//
// Addresses and services are the same as ECMP's; services are called "web-red",
// "web6-red" and so on.
func VLAN() Topology {
	const balancers, servers = 2, 2
	d := newDrawing("vlan")
	for _, tenant := range []struct {
		name string
		vlan uint16
	}{{"red", 100}, {"blue", 200}} {
		s := sited(ECMPOptions{Forward: lb.L2DSR, Balancers: balancers, Servers: servers})
		s.tenant, s.vlan = tenant.name, tenant.vlan
		s.draw(d)
	}
	for n := range balancers {
		d.balancer(n+1, 0)
	}
	return d.finish()
}

// VXLAN is two tenants that have the same VIPs, and the same addresses
// everywhere, in two VXLAN segments over one network: red has identifier 5001
// and its tunnels run over IPv4, blue has 5002 and its tunnels run over IPv6.
// Routers and servers have VXLAN devices of the kernel. Two balancers serve
// both; they get frames of the segments from the routers, and send frames of the
// segments to the servers:
//
//	client-red ── router-red ── switch ─┬─ lb1, lb2
//	client-blue ─ router-blue ──┘       └─ server-red1, …, server-blue2
//
// The tenants' clients are in 10.0.1.0/24 and fd00:1::/64, their servers in
// 10.0.3.0/24 and fd00:3::/64. The network below the segments is 10.0.2.0/24 and
// fd00:2::/64. Services are called "web-red", "web6-red" and so on.
//
// The links that carry the segments have the given MTU in bytes; 0 is as much as
// clients' full packets need. With less, routers send ICMP errors
// to clients.
func VXLAN(mtu int) Topology {
	const balancers, servers = 2, 2
	mtu = cmp.Or(mtu, tunnelMTU)
	d := newDrawing("vxlan")
	for i, tenant := range []string{"red", "blue"} {
		s := sited(ECMPOptions{Forward: lb.VXLAN, MTU: mtu, Balancers: balancers, Servers: servers})
		s.tenant, s.overlay = tenant, &overlayNetwork{id: firstVNI + uint32(i), family: i, tenant: i, servers: i * servers}
		s.draw(d)
	}
	for n := range balancers {
		d.balancer(n+1, mtu)
	}
	return d.finish()
}
