// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// The commands of hosts with a kind of each: peers and single routes, equal routes, bridges,
// overlays.
func TestCommands(t *testing.T) {
	cloud := drawn(t, Cloud, CloudOptions{Forward: lb.NAT, Balancers: 1, Servers: 1})
	ecmp := drawn(t, ECMP, ECMPOptions{Forward: lb.VXLAN, Balancers: 2, Servers: 1})
	vxlan := VXLAN(0)
	for name, c := range map[string]struct {
		got  commands
		want []string
	}{
		"cloud's router": {cloud.Host("router").commands(), []string{
			"link set lo up", "link set lb1 up",
			"addr add 10.0.1.1/24 dev eth0", "addr add fd00:1::1/64 dev eth0 nodad",
			"addr add 10.0.2.1/32 peer 10.0.2.11 dev lb1", "addr add fd00:2::1/128 peer fd00:2::11 dev lb1 nodad",
			"route add fd00:2::11/128 dev lb1", "route add 10.1.1.1/32 via 10.0.2.11",
		}},
		"cloud's balancer": {cloud.Host("lb1").commands(), []string{
			"addr add 10.0.2.11/32 dev eth0", "route add 10.0.2.1/32 dev eth0", "route add 0.0.0.0/0 via 10.0.2.1",
		}},
		"router": {ecmp.Host("router").commands(), []string{
			"route add fd00:10:1:1::1/128 nexthop via fd00:2::11 nexthop via fd00:2::12",
		}},
		"switch": {ecmp.Host("switch").commands(), []string{
			"link add br0 address 02:02:00:00:00:01 type bridge mcast_snooping 0", "link set lb2 master br0", "link set br0 up",
		}},
		"server": {ecmp.Host("server1").commands(), []string{
			"link add vx6 mtu 1500 address 02:01:13:89:64:01 type vxlan id 5001 local fd00:2::101 dstport 4789",
			"link set vx6 addrgenmode none", "link set vx6 up", "addr add 10.1.1.1/32 dev lo",
		}},
		"tenant's router": {vxlan.Host("router-blue").commands(), []string{
			"neigh replace 10.0.3.11 lladdr 02:00:00:00:0a:01 dev vx0 nud permanent",
		}},
		"its forwarding table": {vxlan.Host("router-blue").forwarding(), []string{
			"fdb append 02:00:00:00:0a:02 dev vx0 dst fd00:2::12 self permanent",
			"fdb append 00:00:00:00:00:00 dev vx0 dst fd00:2::103 self permanent",
		}},
	} {
		last := -1
		for _, line := range c.want {
			i := slices.Index(c.got, line)
			if i <= last {
				t.Errorf("%s: no %q after line %d of %q", name, line, last+1, c.got)
			}
			last = i
		}
	}
}
