// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"

	"fairlead.io/fairlead/internal/lb"
)

// tunnelMTU carries a packet of defaultMTU with any outer header of ipip.
const tunnelMTU = 1600

// ECMPOptions are what the lab "ecmp" can be varied in.
type ECMPOptions struct {
	// Fairlead is the path of the fairlead executable, which runs in balancers
	// and servers.
	Fairlead string
	// Forward is lb.L2DSR or lb.IPIP.
	Forward lb.Forward
	// Balancers and Servers are how many there are: 1 to MaxBalancers and 1 to
	// MaxServers.
	Balancers, Servers int
}

// ECMP is a client behind a router that spreads two VIPs, one for each address
// family, over balancers by equal-cost routes. The servers answer through the
// router, past the balancers:
//
//	client ── router ── switch ─┬─ lb1, lb2 …
//	                            └─ server1, server2 …
//
// The client's network is 10.0.1.0/24 and fd00:1::/64, the others' is
// 10.0.2.0/24 and fd00:2::/64. The services are "web" (TCP port 80) and "echo"
// (UDP port 7) at 10.1.1.1, "web6" and "echo6" at fd00:10:1:1::1.
func ECMP(o ECMPOptions) (Topology, error) {
	mtu := 0
	switch o.Forward {
	case lb.L2DSR:
	case lb.IPIP:
		mtu = tunnelMTU
	default:
		return Topology{}, fmt.Errorf("topology ecmp: forwarding mode %s: want l2dsr or ipip", o.Forward)
	}
	if o.Balancers < 1 || o.Balancers > MaxBalancers {
		return Topology{}, fmt.Errorf("topology ecmp: %d balancers: want 1 to %d", o.Balancers, MaxBalancers)
	}
	if o.Servers < 1 || o.Servers > MaxServers {
		return Topology{}, fmt.Errorf("topology ecmp: %d servers: want 1 to %d", o.Servers, MaxServers)
	}
	only := site{
		fairlead: o.Fairlead, forward: o.Forward,
		balancers: o.Balancers, servers: o.Servers, mtu: mtu,
	}
	d := newDrawing("ecmp")
	only.draw(d)
	for n := range o.Balancers {
		d.balancer(o.Fairlead, n+1, mtu)
		balancer := &d.Hosts[len(d.Hosts)-1]
		balancer.Routes = defaultRoutes(serviceNetwork)
	}
	return d.finish(), nil
}
