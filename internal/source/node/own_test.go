// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/lb"
)

// A node without IPv4 gets a router id of its own, always the same.
func TestRouterIDWithoutIPv4(t *testing.T) {
	conf := &config.Config{BGP: &bgp.Config{}}
	conf.Node.Interfaces = []string{"none0"} // has no address
	seen := map[netip.Addr]netip.Addr{}
	six := netip.MustParseAddr("2001:db8::11")
	for range 1000 {
		var ids [2]netip.Addr
		for i := range ids {
			own, err := findOwnNode("n1", conf, netip.Addr{}, six)
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = own.routerID
		}
		if id := ids[0]; id != ids[1] || !id.Is4() || !id.IsGlobalUnicast() || seen[id].IsValid() {
			t.Fatalf("router ids %v of %s, that of %s", ids, six, seen[id])
		}
		seen[ids[0]], six = six, six.Next()
	}
	four := netip.MustParseAddr("192.0.2.11")
	if own, err := findOwnNode("n1", conf, four, six); err != nil || own.routerID != four {
		t.Errorf("router id %s, error %v, want the IPv4 address", own.routerID, err)
	}
	if _, err := findOwnNode("n1", conf, netip.Addr{}, netip.Addr{}); err == nil {
		t.Error("a router id of a node without any address")
	}
}

// A VIP in a network of the node's interfaces is warned about, with the network.
func TestWarnConnected(t *testing.T) {
	var out bytes.Buffer
	networks := []netip.Prefix{netip.MustParsePrefix("10.0.2.0/24"), netip.MustParsePrefix("10.1.1.1/32")}
	services := []lb.Service{
		{Name: "far", VIP: lb.VIP{Address: netip.MustParseAddr("10.1.1.1")}},
		{Name: "near", VIP: lb.VIP{Address: netip.MustParseAddr("10.0.2.50")}},
		{Name: "segment", VIP: lb.VIP{Address: netip.MustParseAddr("10.0.2.51"), Segment: lb.Segment{Type: lb.SegmentVLAN, ID: 7}}},
	}
	warnConnected(slog.New(slog.NewTextHandler(&out, nil)), networks, services)
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "service=near vip=10.0.2.50 network=10.0.2.0/24") {
		t.Errorf("log:\n%s", got)
	}
}
