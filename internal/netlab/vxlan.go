// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"

	"fairlead.io/fairlead/internal/lb"
)

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
// 10.0.3.0/24 and fd00:3::/64. What carries the segments is 10.0.2.0/24 and
// fd00:2::/64. Services are called "web-red", "web6-red" and so on. Fairlead is
// the path of the fairlead executable.
//
// The links that carry the segments have the given MTU in bytes; 0 is as much as
// clients' full packets need. With less, routers tell clients what fits.
func VXLAN(fairlead string, mtu int) Topology {
	const balancers, servers = 2, 2
	mtu = cmp.Or(mtu, tunnelMTU)
	d := newDrawing("vxlan")
	for i, tenant := range []string{"red", "blue"} {
		s := site{
			fairlead: fairlead, forward: lb.VXLAN, tenant: tenant, balancers: balancers, servers: servers, mtu: mtu,
			overlay: &overlayNetwork{id: firstVNI + uint32(i), family: i, tenant: i, servers: i * servers},
		}
		s.draw(d)
	}
	for n := range balancers {
		d.balancer(fairlead, n+1, mtu)
	}
	return d.finish()
}
