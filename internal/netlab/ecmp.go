// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"fmt"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// tunnelMTU carries a packet of defaultMTU with the outer headers of any mode.
const tunnelMTU = 1600

// ECMPOptions are what the lab "ecmp" can be varied in.
type ECMPOptions struct {
	// Fairlead is the path of the fairlead executable, which runs in balancers
	// and servers.
	Fairlead string
	// Forward is any mode. Servers end IPIP and GUE by "fairlead node", VXLAN by
	// devices of the kernel and Geneve by a BPF program, as not every kernel has
	// such devices. With lb.NAT they know nothing of the VIPs.
	Forward lb.Forward
	// MTU is that of the links to balancers and servers in bytes. 0 is 1500, and
	// in modes that tunnel as much as a client's full packet becomes; with 1500
	// clients have to learn what fits.
	MTU int
	// Balancers and Servers are how many there are: 1 to MaxBalancers and 1 to
	// MaxServers.
	Balancers, Servers int
	// Second is how many balancers, the first ones, also serve a second pair of
	// VIPs: 0 to Balancers.
	Second int
	// Router is what fills the router's table; with "" the lab does, and what
	// follows must not be set.
	Router RouterKind
	// GoBGPD is the gobgpd that a GoBGP router runs: Debian's is too old for FRR's
	// zebra, "go build -modfile=tools/go.mod" builds another. "" is the one in PATH.
	GoBGPD string
	// Reflector puts a BGP route reflector between the router and the balancers.
	Reflector bool
	// Dynamic has the router take any balancer that calls, instead of those that
	// it is told ("dynamic neighbours").
	Dynamic bool
	// PeerIPv6 has all BGP sessions over IPv6.
	PeerIPv6 bool
	// Foreign adds a server that announces VIPs by ExaBGP.
	Foreign bool
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
// With a Router that speaks BGP the balancers, of AS 65021, announce the VIPs to
// the router, of AS 65000, over IPv4 for both families, and both sides watch each
// other by BFD. With a Reflector all speakers are of AS 65021, and know only the
// host "reflector", 10.0.2.2. A Foreign speaker is the host "exabgp", 10.0.2.3,
// which serves and announces the first pair of VIPs, and 10.1.9.1 and
// fd00:10:1:9::1. The lab is up when the router has all routes that it has to
// learn.
func ECMP(o ECMPOptions) (Topology, error) {
	mtu := o.MTU
	switch o.Forward {
	case lb.L2DSR, lb.NAT:
	case lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve:
		mtu = cmp.Or(mtu, tunnelMTU)
	default:
		return Topology{}, fmt.Errorf("topology ecmp: forwarding mode %s: want l2dsr, ipip, gue, vxlan, geneve or nat", o.Forward)
	}
	if mtu != 0 && (mtu < minMTU || mtu > maxMTU) {
		return Topology{}, fmt.Errorf("topology ecmp: mtu %d is not in %d to %d", mtu, minMTU, maxMTU)
	}
	if o.Balancers < 1 || o.Balancers > MaxBalancers {
		return Topology{}, fmt.Errorf("topology ecmp: %d balancers: want 1 to %d", o.Balancers, MaxBalancers)
	}
	if o.Servers < 1 || o.Servers > MaxServers {
		return Topology{}, fmt.Errorf("topology ecmp: %d servers: want 1 to %d", o.Servers, MaxServers)
	}
	if o.Second < 0 || o.Second > o.Balancers {
		return Topology{}, fmt.Errorf("topology ecmp: %d balancers of the second VIPs: want 0 to %d", o.Second, o.Balancers)
	}
	only := site{
		fairlead: o.Fairlead, forward: o.Forward, balancers: o.Balancers, servers: o.Servers, second: o.Second, mtu: mtu,
		peering: peering{
			router: o.Router, gobgpd: cmp.Or(o.GoBGPD, "gobgpd"), reflector: o.Reflector, dynamic: o.Dynamic,
			ipv6: o.PeerIPv6, foreign: o.Foreign, balancers: o.Balancers,
		},
	}
	if err := only.peering.check(); err != nil {
		return Topology{}, fmt.Errorf("topology ecmp: %w", err)
	}
	return only.ecmp(), nil
}

// ecmp draws the whole topology.
func (s *site) ecmp() Topology {
	d := newDrawing("ecmp")
	s.draw(d)
	if s.peering.foreign {
		s.foreigner(d)
	}
	if s.peering.reflector {
		s.reflector(d)
	}
	for n := range s.balancers {
		d.balancer(s.fairlead, n+1, s.mtu)
		h := &d.Hosts[len(d.Hosts)-1]
		h.Routes = defaultRoutes(serviceNetwork)
		if s.peering.speaks() {
			h.Agent.BGP = s.peering.announcer(balancerNumber + n + 1)
		}
		if n >= s.second {
			h.Agent.Services = slices.DeleteFunc(slices.Clone(d.Services), func(service lb.Service) bool {
				return !slices.Contains(vips(), service.Address)
			})
		}
	}
	return d.finish()
}
