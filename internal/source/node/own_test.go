// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/config"
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
