// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// The machine of the decision tables: two interfaces with XDP and a VLAN device
// on the first, and others without.
const (
	eth0 = iota + 2
	eth1
	eth0vlan
	eth0qinq
	wg0
	wg0vlan
	eth2
)

var (
	macEth0    = lb.MAC{2, 0, 0, 0, 0, 0xe0}
	macEth1    = lb.MAC{2, 0, 0, 0, 0, 0xe1}
	macVLAN    = lb.MAC{2, 0, 0, 0, 0, 0xea}
	macBackend = lb.MAC{2, 0, 0, 0, 1, 1}
	macGateway = lb.MAC{2, 0, 0, 0, 1, 2}
	macGiven   = lb.MAC{2, 0, 0, 0, 9, 9}
)

func device(index int, name string, mac lb.MAC) netlink.LinkAttrs {
	return netlink.LinkAttrs{
		Index: index, Name: name, MTU: 1500, HardwareAddr: mac[:],
		RawFlags: unix.IFF_UP | unix.IFF_LOWER_UP,
	}
}

func onTopOf(parent int, a netlink.LinkAttrs) netlink.LinkAttrs {
	a.ParentIndex = parent
	a.MTU = 1496
	return a
}

func machine() map[int]link {
	tunnel := device(wg0, "wg0", lb.MAC{})
	tunnel.HardwareAddr = nil
	bare := device(eth2, "eth2", lb.MAC{})
	bare.HardwareAddr = nil
	links := map[int]link{}
	for _, l := range []netlink.Link{
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: Loopback, Name: "lo", MTU: 65536, RawFlags: unix.IFF_UP}},
		&netlink.Device{LinkAttrs: device(eth0, "eth0", macEth0)},
		&netlink.Veth{LinkAttrs: onTopOf(99, device(eth1, "eth1", macEth1))},
		&netlink.Vlan{
			LinkAttrs: onTopOf(eth0, device(eth0vlan, "eth0.100", macVLAN)),
			VlanId:    100, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q,
		},
		&netlink.Vlan{
			LinkAttrs: onTopOf(eth0, device(eth0qinq, "eth0.200", macVLAN)),
			VlanId:    200, VlanProtocol: netlink.VLAN_PROTOCOL_8021AD,
		},
		&netlink.Wireguard{LinkAttrs: tunnel},
		&netlink.Vlan{
			LinkAttrs: onTopOf(wg0, device(wg0vlan, "wg0.7", macVLAN)),
			VlanId:    7, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q,
		},
		&netlink.Device{LinkAttrs: bare},
	} {
		links[l.Attrs().Index] = linkOf(l)
	}
	return links
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func unicast(paths ...path) route { return route{kind: unix.RTN_UNICAST, paths: paths} }

func via(index int, gateway string) path { return path{index: index, gateway: ip(gateway)} }

func direct(index int) path { return path{index: index} }

func reachable(mac lb.MAC) neighbour { return neighbour{state: unix.NUD_REACHABLE, mac: mac} }

func TestDecide(t *testing.T) {
	const backend = "10.0.0.21"
	hop := Hop{Interface: "eth0", Index: eth0, Source: macEth0, Destination: macBackend, MTU: 1500}
	with := func(change func(*Hop)) Hop {
		h := hop
		change(&h)
		return h
	}
	l2 := Target{Address: ip(backend), OnLink: true}
	tunnel := Target{Address: ip(backend)}
	handover := Target{Address: ip(backend), Handover: true}
	given := Target{Address: ip(backend), OnLink: true, MAC: macGiven}
	backendOn := func(index int) map[neighbourKey]neighbour {
		return map[neighbourKey]neighbour{{index, ip(backend)}: reachable(macBackend)}
	}
	gateways := map[neighbourKey]neighbour{
		{eth0, ip("10.0.0.1")}: {state: unix.NUD_FAILED},
		{eth0, ip("10.0.0.2")}: reachable(macGateway),
		{eth1, ip("10.2.0.1")}: reachable(macBackend),
		{eth0, ip("fe80::1")}:  reachable(macGateway),
	}
	addresses := []address{
		{index: eth0, prefix: netip.MustParsePrefix("10.0.0.5/24")},
		{index: eth1, prefix: netip.MustParsePrefix("10.2.0.5/24")},
		{index: wg0, prefix: netip.MustParsePrefix("10.3.0.5/32")},
	}

	for _, test := range []struct {
		name       string
		target     Target
		interfaces []string // default eth0, eth1
		route      route
		neighbours map[neighbourKey]neighbour
		want       Hop
		err        string
	}{
		{name: "direct", target: l2, route: unicast(direct(eth0)), neighbours: backendOn(eth0), want: hop},
		{
			name: "VLAN device", target: l2, route: unicast(direct(eth0vlan)), neighbours: backendOn(eth0vlan),
			want: with(func(h *Hop) { h.Source, h.VLAN, h.MTU = macVLAN, 100, 1496 }),
		},
		{
			name: "XDP on the VLAN device itself", target: l2, route: unicast(direct(eth0vlan)),
			interfaces: []string{"eth0", "eth0.100"}, neighbours: backendOn(eth0vlan),
			want: Hop{
				Interface: "eth0.100", Index: eth0vlan, Source: macVLAN, Destination: macBackend, MTU: 1496,
			},
		},
		{
			name: "VLAN device with provider tags", target: l2, route: unicast(direct(eth0qinq)), neighbours: backendOn(eth0qinq),
			err: "route leads through eth0.200, whose tags (0x88a8) are not 802.1Q",
		},
		{
			name: "VLAN device of another interface", target: l2, route: unicast(direct(wg0vlan)),
			err: "route leads through wg0.7, which is not among node.interfaces [eth0 eth1]",
		},
		{
			name: "other interface", target: l2, route: unicast(direct(wg0)), interfaces: []string{"eth0"},
			err: "route leads through wg0, which is not among node.interfaces [eth0]",
		},
		{
			name: "no Ethernet", target: l2, route: unicast(direct(eth2)), interfaces: []string{"eth2"},
			err: "interface eth2 has no Ethernet address",
		},
		{
			name: "interface gone", target: l2, route: unicast(direct(77)),
			err: "route leads through interface 77, which was removed",
		},
		{
			name: "no carrier", target: l2, route: unicast(path{index: eth0, down: true}), neighbours: backendOn(eth0),
			err: "interface eth0 is down",
		},
		{name: "gateway", target: l2, route: unicast(via(eth0, "10.0.0.2")), neighbours: gateways, err: "10.0.0.21 is behind gateway 10.0.0.2: l2dsr needs it directly connected"},
		{
			name: "tunnel through a gateway", target: tunnel, route: unicast(via(eth0, "10.0.0.2")), neighbours: gateways,
			want: with(func(h *Hop) { h.Destination, h.Local = macGateway, ip("10.0.0.5") }),
		},
		{
			name: "IPv4 through an IPv6 gateway", target: tunnel, route: unicast(via(eth0, "fe80::1")), neighbours: gateways,
			want: with(func(h *Hop) { h.Destination, h.Local = macGateway, ip("10.0.0.5") }),
		},
		{
			name: "route with a source and an MTU", target: tunnel,
			route: route{
				kind: unix.RTN_UNICAST, source: ip("10.9.9.9"), mtu: 1400,
				paths: []path{via(eth0, "10.0.0.2")},
			},
			neighbours: gateways,
			want: with(func(h *Hop) {
				h.Destination, h.Local, h.MTU = macGateway, ip("10.9.9.9"), 1400
			}),
		},
		{
			name: "first usable path", target: tunnel, neighbours: gateways,
			route: unicast(direct(wg0), via(eth0, "10.0.0.1"), via(eth0, "10.0.0.2"), via(eth1, "10.2.0.1")),
			want:  with(func(h *Hop) { h.Destination, h.Local = macGateway, ip("10.0.0.5") }),
		},
		{
			name: "path over the other interface", target: tunnel, neighbours: gateways,
			route: unicast(path{index: eth0, gateway: ip("10.0.0.2"), down: true}, via(eth1, "10.2.0.1")),
			want: Hop{
				Interface: "eth1", Index: eth1, Source: macEth1, Destination: macBackend, MTU: 1496, Local: ip("10.2.0.5"),
			},
		},
		{
			name: "no usable path", target: tunnel, neighbours: gateways,
			route: unicast(via(eth0, "10.0.0.1"), direct(wg0)),
			err:   "neighbour 10.0.0.1 on eth0 is unresolved",
		},
		{
			name: "handed over", target: handover, route: unicast(via(wg0, "10.0.0.9")),
			want: Hop{Interface: "wg0", Index: wg0, Handover: true, MTU: 1500, Local: ip("10.3.0.5")},
		},
		{
			name: "handed over with provider tags", target: handover, route: unicast(direct(eth0qinq)),
			want: Hop{Interface: "eth0.200", Index: eth0qinq, Handover: true, Source: macVLAN, MTU: 1496, Local: ip("10.0.0.5")},
		},
		{
			name: "not handed over", target: handover, route: unicast(direct(eth0)), neighbours: backendOn(eth0),
			want: with(func(h *Hop) { h.Local = ip("10.0.0.5") }),
		},
		{
			name: "handed over to a device that is down", target: handover, route: unicast(path{index: wg0, down: true}),
			err: "route leads through wg0, which is not among node.interfaces [eth0 eth1]",
		},
		{name: "no neighbour", target: l2, route: unicast(direct(eth0)), err: "neighbour 10.0.0.21 on eth0 is unresolved"},
		{
			name: "no IPv6 source", target: Target{Address: ip("fd00::21")}, route: unicast(direct(eth0)),
			neighbours: map[neighbourKey]neighbour{{eth0, ip("fd00::21")}: reachable(macBackend)},
			err:        "eth0 has no source address for packets to fd00::21",
		},
		{name: "no route", target: l2, err: "no route to 10.0.0.21"},
		{name: "no route, interface missing", target: l2, interfaces: []string{"eth0", "eth9"}, err: "no route to 10.0.0.21 (down: eth9)"},
		{name: "blackhole", target: l2, route: noRoute(unix.EINVAL), err: "route to 10.0.0.21 is a blackhole"},
		{name: "unreachable", target: l2, route: noRoute(unix.EHOSTUNREACH), err: "route to 10.0.0.21 is unreachable"},
		{name: "prohibit", target: l2, route: noRoute(unix.EACCES), err: "route to 10.0.0.21 is prohibited"},
		{name: "this machine", target: l2, route: route{kind: unix.RTN_LOCAL}, err: "10.0.0.21 is an address of this machine"},
		{
			name: "this machine's sockets", target: handover, route: route{kind: unix.RTN_LOCAL},
			want: Hop{Interface: "lo", Index: Loopback, Handover: true, MTU: 65536, Local: ip(backend)},
		},
		{name: "broadcast", target: l2, route: route{kind: unix.RTN_BROADCAST}, err: "10.0.0.21 is not the address of a single machine"},
		{
			name: "encapsulating route", target: tunnel, route: route{kind: unix.RTN_UNICAST, encapsulated: true, paths: []path{direct(eth0)}},
			err: "route to 10.0.0.21 adds an encapsulation, which XDP doesn't write",
		},
		{name: "given MAC", target: given, route: unicast(direct(eth0)), want: with(func(h *Hop) { h.Destination = macGiven })},
		{name: "given MAC behind a gateway", target: given, route: unicast(via(eth0, "10.0.0.1")), want: with(func(h *Hop) { h.Destination = macGiven })},
		{name: "given MAC without a route", target: given, interfaces: []string{"eth0"}, want: with(func(h *Hop) { h.Destination = macGiven })},
		{name: "given MAC, no route, two interfaces", target: given, err: "no route to 10.0.0.21, and its MAC address may be on any of [eth0 eth1]"},
		{name: "given MAC, no route, no interface", target: given, interfaces: []string{"eth9"}, err: "no route to 10.0.0.21, and no interface eth9"},
		{name: "given MAC, blackhole", target: given, route: noRoute(unix.EINVAL), err: "route to 10.0.0.21 is a blackhole"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := view{
				interfaces: test.interfaces,
				links:      machine(),
				addresses:  addresses,
				neighbour: func(key neighbourKey) (neighbour, error) {
					return test.neighbours[key], nil
				},
			}
			if v.interfaces == nil {
				v.interfaces = []string{"eth0", "eth1"}
			}
			got, err := v.decide(test.target, &test.route)
			if text(err) != test.err || got != test.want {
				t.Errorf("got  %+v, %q\nwant %+v, %q", got, text(err), test.want, test.err)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNeighbourUsable(t *testing.T) {
	usable := map[uint16]bool{
		unix.NUD_NONE: false, unix.NUD_INCOMPLETE: false, unix.NUD_FAILED: false,
		unix.NUD_REACHABLE: true, unix.NUD_STALE: true, unix.NUD_DELAY: true, unix.NUD_PROBE: true,
		unix.NUD_PERMANENT: true, unix.NUD_NOARP: true,
	}
	for state, want := range usable {
		if got := (neighbour{state: state, mac: macBackend}).usable(); got != want {
			t.Errorf("state 0x%02x: usable %v, want %v", state, got, want)
		}
		if (neighbour{state: state}).usable() {
			t.Errorf("state 0x%02x is usable without a MAC address", state)
		}
	}
}

func TestRouteOf(t *testing.T) {
	_, to, err := net.ParseCIDR("10.6.0.0/24")
	if err != nil {
		t.Fatal(err)
	}
	got := routeOf(&netlink.Route{
		Type: unix.RTN_UNICAST, Table: 254, Dst: to, Src: net.ParseIP("10.0.0.5"), MTU: 1400,
		MultiPath: []*netlink.NexthopInfo{
			{LinkIndex: eth1, Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: net.ParseIP("fe80::1")}},
			{LinkIndex: eth0, Gw: net.IPv4(10, 0, 0, 1), Flags: unix.RTNH_F_LINKDOWN},
		},
	})
	if len(got.paths) != 2 ||
		got.paths[0] != (path{index: eth0, gateway: ip("10.0.0.1"), down: true}) ||
		got.paths[1] != (path{index: eth1, gateway: ip("fe80::1")}) {
		t.Errorf("paths %+v", got.paths)
	}
	if got.prefix != netip.MustParsePrefix("10.6.0.0/24") || got.source != ip("10.0.0.5") || got.mtu != 1400 || got.table != 254 {
		t.Errorf("route %+v", got)
	}
	if single := routeOf(&netlink.Route{Type: unix.RTN_UNICAST, LinkIndex: eth0}); len(single.paths) != 1 ||
		single.paths[0] != direct(eth0) || single.source.IsValid() || single.prefix.IsValid() {
		t.Errorf("route %+v", single)
	}
}

func TestHopString(t *testing.T) {
	for want, h := range map[string]Hop{
		"eth0 02:00:00:00:01:01":          {Interface: "eth0", Destination: macBackend},
		"eth0 02:00:00:00:01:01 vlan 100": {Interface: "eth0", Destination: macBackend, VLAN: 100},
		"flannel.1 by the kernel":         {Interface: "flannel.1", Handover: true},
		"this machine's network stack":    {Interface: "lo", Index: Loopback, Handover: true},
	} {
		if got := h.String(); got != want {
			t.Errorf("%+v: %q, want %q", h, got, want)
		}
	}
}

// Packets for pods of this machine are left to its network stack, and no others.
func TestFilterPods(t *testing.T) {
	const veth, bridge, port, wide, nic, macvlan = 20, 21, 22, 23, 24, 25
	portOf := func(bridge int, a netlink.LinkAttrs) netlink.LinkAttrs {
		a.MasterIndex = bridge
		return a
	}
	mac := lb.MAC{2, 0, 0, 0, 0, 0x20}
	links := machine()
	for _, l := range []netlink.Link{
		&netlink.Veth{LinkAttrs: device(veth, "veth1", mac)},
		&netlink.Bridge{LinkAttrs: device(bridge, "cni0", mac)},
		&netlink.Veth{LinkAttrs: portOf(bridge, device(port, "veth2", mac))},
		&netlink.Bridge{LinkAttrs: device(wide, "br0", mac)},
		&netlink.Device{LinkAttrs: portOf(wide, device(nic, "eth3", mac))},
		&netlink.Macvlan{LinkAttrs: device(macvlan, "mv0", mac)},
	} {
		links[l.Attrs().Index] = linkOf(l)
	}
	v := view{
		interfaces: []string{"eth0"}, filterPods: true, links: links,
		addresses: []address{{index: eth0, prefix: netip.MustParsePrefix("10.0.0.5/24")}},
		neighbour: func(neighbourKey) (neighbour, error) { return reachable(macBackend), nil },
	}
	pod := Target{Address: ip("10.244.0.2"), Handover: true}
	stack := func(device string) Hop {
		return Hop{Interface: device, Index: Loopback, Handover: true, Local: ip("10.0.0.5"), MTU: 1500}
	}
	device := func(device string, index int) Hop {
		return Hop{Interface: device, Index: index, Handover: true, Source: mac, Local: ip("10.0.0.5"), MTU: 1500}
	}
	for name, test := range map[string]struct {
		path path
		want Hop
	}{
		"veth":                           {direct(veth), stack("veth1")},
		"bridge of veths":                {direct(bridge), stack("cni0")},
		"behind a gateway":               {via(veth, "10.244.0.1"), device("veth1", veth)},
		"bridge with a network's port":   {direct(wide), device("br0", wide)},
		"another kind of device":         {direct(macvlan), device("mv0", macvlan)},
		"an interface on which XDP runs": {direct(eth0), Hop{Interface: "eth0", Index: eth0, Source: macEth0, Destination: macBackend, Local: ip("10.0.0.5"), MTU: 1500}},
	} {
		rt := unicast(test.path)
		if got, err := v.decide(pod, &rt); err != nil || got != test.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
	}
	v.filterPods = false
	rt := unicast(direct(veth))
	if got, err := v.decide(pod, &rt); err != nil || got != device("veth1", veth) {
		t.Errorf("without filters: %+v, %v", got, err)
	}
}
