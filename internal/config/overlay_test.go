// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

const overlayInput = `node: {name: lb1, interfaces: [eth0], tunnelEnds: [10.0.2.11, "fd00:2::11"], tunnelPeers: [10.0.2.0/24, "fd00:2::/64"]}
services:
- name: web
  address: 10.1.1.1
  port: 80
  segment: {type: vxlan, id: 5001}
  forward: geneve
  backends:
  - address: 192.168.0.9
    tunnelEnd: fd00:2::21
    mac: 02:00:00:00:00:09
    segment: {type: geneve, id: 7}
`

func TestParseOverlay(t *testing.T) {
	c, err := config.Parse("f", overlayInput, dataplanetest.Limits())
	if err != nil {
		t.Fatal(err)
	}
	ends := []netip.Addr{netip.MustParseAddr("10.0.2.11"), netip.MustParseAddr("fd00:2::11")}
	if diff := cmp.Diff(ends, c.Node.TunnelEnds, equateAddresses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	peers := []netip.Prefix{netip.MustParsePrefix("10.0.2.0/24"), netip.MustParsePrefix("fd00:2::/64")}
	if diff := cmp.Diff(peers, c.Node.TunnelPeers, equateAddresses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want := []lb.Backend{{
		Address: netip.MustParseAddr("192.168.0.9"), Port: 80, Weight: 1, TunnelEnd: netip.MustParseAddr("fd00:2::21"),
		MAC: lb.MAC{2, 0, 0, 0, 0, 9}, Segment: lb.Segment{Type: lb.SegmentGeneve, ID: 7},
	}}
	if diff := cmp.Diff(want, c.Services[0].Backends, equateAddresses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOverlayErrors(t *testing.T) {
	var ends strings.Builder
	for i := range 63 {
		fmt.Fprintf(&ends, " 10.0.3.%d,", i)
	}
	for name, test := range map[string]struct{ old, new, want string }{
		"no tunnel ends": {`, tunnelEnds: [10.0.2.11, "fd00:2::11"], tunnelPeers: [10.0.2.0/24, "fd00:2::/64"]`, "",
			"f:6:19: services[0].segment.type: vxlan frames arrive at tunnel end points of this node: node.tunnelEnds has none"},
		"empty tunnel ends": {`[10.0.2.11, "fd00:2::11"], tunnelPeers: [10.0.2.0/24, "fd00:2::/64"]`, "[]",
			"f:6:19: services[0].segment.type: vxlan frames arrive at tunnel end points of this node: node.tunnelEnds has none"},
		"no tunnel peers": {`, tunnelPeers: [10.0.2.0/24, "fd00:2::/64"]`, "",
			"f:1:51: node.tunnelEnds: want tunnelPeers too: the prefixes of the hosts that send VXLAN and Geneve frames to this node"},
		"tunnel peers only": {`, tunnelEnds: [10.0.2.11, "fd00:2::11"]`, "",
			`f:1:52: node.tunnelPeers: only with tunnelEnds
f:6:19: services[0].segment.type: vxlan frames arrive at tunnel end points of this node: node.tunnelEnds has none`},
		"bad tunnel ends": {"[10.0.2.11,", "[10.0.2.11, 10.0.2.11, \"::1\", x,",
			`f:1:63: node.tunnelEnds[1]: 10.0.2.11 is given twice
f:1:74: node.tunnelEnds[2]: ::1 is a loopback address: want one that others can reach
f:1:81: node.tunnelEnds[3]: bad address "x": want an IPv4 or IPv6 address`},
		"too many tunnel ends": {"[10.0.2.11,", "[10.0.2.11," + ends.String(),
			"f:1:51: node.tunnelEnds: 65 addresses are too many: want at most 64"},
		"no tunnel end of a backend": {"    tunnelEnd: fd00:2::21\n", "",
			"f:9:5: services[0].backends[0].tunnelEnd: missing: geneve needs the backend's tunnel end point"},
		"no address within the segment": {"    mac: 02:00:00:00:00:09\n", "",
			"f:9:5: services[0].backends[0].mac: missing: geneve needs the backend's own address within its segment"},
		"no segment of that type": {"    segment: {type: geneve, id: 7}\n", "",
			"f:9:5: services[0].backends[0].segment: missing: the service is in no geneve segment, so the backend's has to be given"},
	} {
		t.Run(name, func(t *testing.T) {
			input := spoil(t, overlayInput, test.old, test.new)
			_, err := config.Parse("f", input, dataplanetest.Limits())
			checkErrors(t, err, input, test.want)
		})
	}
}
