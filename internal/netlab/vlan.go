// SPDX-License-Identifier: Apache-2.0

package netlab

import "fairlead.io/fairlead/internal/lb"

// VLAN is two tenants that have the same VIPs, and the same addresses
// everywhere, in VLANs 100 (red) and 200 (blue) of one switch. Two balancers
// serve both:
//
//	client-red ── router-red ── switch ─┬─ lb1, lb2
//	client-blue ─ router-blue ──┘       └─ server-red1, …, server-blue2
//
// Addresses and services are those of ECMP; services are called "web-red",
// "web6-red" and so on. Fairlead is the path of the fairlead executable.
func VLAN(fairlead string) Topology {
	const balancers, servers = 2, 2
	d := newDrawing("vlan")
	for _, tenant := range []struct {
		name string
		vlan uint16
	}{{"red", 100}, {"blue", 200}} {
		s := site{
			fairlead: fairlead, forward: lb.L2DSR, tenant: tenant.name, vlan: tenant.vlan,
			balancers: balancers, servers: servers,
		}
		s.draw(d)
	}
	for n := range balancers {
		d.balancer(fairlead, n+1, 0)
	}
	return d.finish()
}
