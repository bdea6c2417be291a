//go:build guest

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"fmt"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/test/e2e/harness"
)

// The networks by their VLAN ids. The lab's own is the untagged one.
const (
	untagged = 0
	red      = 100
	blue     = 200
)

// vlanAddresses are a host's in a network: IPv4, then IPv6.
func vlanAddresses(network, number int) []netip.Addr {
	if network == untagged {
		network = 2
	}
	return []netip.Addr{
		netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", network, number)),
		netip.MustParseAddr(fmt.Sprintf("fd00:%d::%d", network, number)),
	}
}

// segment is a network as configurations name it.
func segment(network int) lb.Segment {
	if network == untagged {
		return lb.Segment{}
	}
	return lb.Segment{Type: lb.SegmentVLAN, ID: uint32(network)}
}

// vlanCase is a way from the router to a server.
type vlanCase struct {
	name    string
	from    int // the network in which the router sends
	forward lb.Forward
	server  int // its number
	network int // the server's
	told    lb.Backend
}

// Tags that the balancer writes, takes off and changes agree with the kernel's VLAN devices. At
// first it has no such device: its configuration has segment and MAC address. Then it reaches
// tagged servers by routes through devices of its own.
func TestVLANDevices(t *testing.T) {
	l := bringUpVLANs(t)
	told := lb.Backend{MAC: lb.MAC{2, 0, 0, 0, 100, 2}, Segment: segment(blue)}
	l.checkVLAN(t, vlanCase{"change as configured", red, lb.L2DSR, 2, blue, told})
	l.joinVLANs(t, balancer, "eth0", 11, red, blue)
	for _, c := range []vlanCase{
		{"change as routed", red, lb.L2DSR, 2, blue, lb.Backend{}},
		{"keep", red, lb.L2DSR, 1, red, lb.Backend{}},
		{"push", untagged, lb.L2DSR, 2, blue, lb.Backend{}},
		{"pop", red, lb.L2DSR, 3, untagged, lb.Backend{Segment: lb.Segment{Type: lb.SegmentNone}}},
		{"tunnel", red, lb.IPIP, 2, blue, lb.Backend{}},
	} {
		l.checkVLAN(t, c)
	}
}

// checkVLAN checks that the server answers, and that it is healthy.
func (l lab) checkVLAN(t *testing.T, c vlanCase) {
	t.Run(c.name, func(t *testing.T) {
		for family, vip := range []string{harness.VIP4, harness.VIP6} {
			l.ip(t, router, fmt.Sprintf("route replace %s via %s", vip, vlanAddresses(c.from, 11)[family]))
		}
		l.replace(t, checked(l.Changed(func(s *lb.Service) {
			b := &s.Backends[0]
			s.Segment, s.Forward, s.Backends = segment(c.from), c.forward, s.Backends[:1]
			b.Address, b.MAC, b.Segment = vlanAddresses(c.network, 100+c.server)[family(s.Address)], c.told.MAC, c.told.Segment
		})))
		l.AwaitHealth(t, []string{"web", "web6"}, observe.HealthHealthy)
		l.checkTraffic(t, upload, fmt.Sprintf("server%d", c.server))
	})
}

// onlyTagged drops packets that arrive without the tag of a VLAN device.
const onlyTagged = "table inet tagged { chain input { type filter hook input priority filter; iifname eth0 drop; }; }\n"

// bringUpVLANs has a router in three networks, and a server in each.
func bringUpVLANs(t *testing.T) lab {
	t.Helper()
	topology := ecmp(t, lb.L2DSR, 3)
	for _, name := range servers { // of VLANs only
		h := topology.Host(name)
		h.Interfaces[0].Addresses, h.Routes, h.Rules = nil, nil, onlyTagged
	}
	l := bringUp(t, "xdp", "vlan", topology)
	l.joinVLANs(t, router, "eth1", 1, red, blue)
	for _, a := range vlanAddresses(red, 11) {
		l.ip(t, router, fmt.Sprintf("neigh add %s lladdr 02:00:00:00:0a:01 dev eth1.%d", a, red))
	}
	for n, network := range []int{red, blue} {
		l.joinVLANs(t, servers[n], "eth0", 101+n, network)
		l.ip(t, servers[n], "link set tunl0 up", "link set ip6tnl0 up")
		for _, gateway := range vlanAddresses(network, 1) {
			l.ip(t, servers[n], fmt.Sprintf("route add default via %s", gateway))
		}
	}
	return l
}

// joinVLANs makes VLAN devices of a host with the addresses of a number.
func (l lab) joinVLANs(t *testing.T, host, device string, number int, networks ...int) {
	t.Helper()
	for _, network := range networks {
		name := fmt.Sprintf("%s.%d", device, network)
		own := vlanAddresses(network, number)
		l.ip(t, host,
			fmt.Sprintf("link add link %s name %s type vlan id %d", device, name, network), "link set "+name+" up",
			fmt.Sprintf("address add %s/24 dev %s", own[0], name), fmt.Sprintf("address add %s/64 dev %s nodad", own[1], name))
	}
}
