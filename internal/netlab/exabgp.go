// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead.io/fairlead/internal/bgp"
)

// foreignName is the host that announces what it serves by ExaBGP, and foreignVIPs
// numbers the pair of VIPs that nobody else serves.
const (
	foreignName = "exabgp"
	foreignVIPs = 9
)

// foreigner draws a server that isn't behind the balancers but beside them: it
// announces their VIPs, and a pair of its own, by a speaker that isn't
// Fairlead's.
func (s *site) foreigner(d *drawing) {
	own := networkAddresses(serviceNetwork, foreignNumber)
	served := append(vips(), vipsOf(foreignVIPs)...)
	h := Host{
		Name: foreignName, Role: Server,
		Loopback: served,
		Routes:   defaultRoutes(serviceNetwork),
		Files: map[string]string{
			nginxConfig:  nginxText(foreignName, webPort),
			exabgpConfig: exabgpText(s.peering.announcer(foreignNumber), own, served),
		},
		Processes: []Process{nginx(), echo(s.fairlead, foreignName, served), exabgp()},
	}
	d.plug(&h, Interface{Name: eth0, Addresses: own}, s.mtu)
	d.Hosts = append(d.Hosts, h)
}

// exabgpConfig is the name of ExaBGP's configuration file in a host's directory.
const exabgpConfig = "exabgp.conf"

// exabgpText announces host routes of both families to the first peer, by way of
// the host's own addresses: IPv4, then IPv6.
func exabgpText(c *bgp.Config, own []netip.Prefix, served []netip.Addr) string {
	peer := c.Peers[0]
	family := func(a netip.Addr) int { // its place in own
		if a.Is4() {
			return 0
		}
		return 1
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("neighbor %s {", peer.Address)
	line("  router-id %s;\n  local-address %s;", c.RouterID, own[family(peer.Address)].Addr())
	line("  local-as %d;\n  peer-as %d;\n  hold-time %.0f;", c.ASN, peer.ASN, peer.HoldTime.Seconds())
	line("  family {\n    ipv4 unicast;\n    ipv6 unicast;\n  }\n  static {")
	for _, a := range served {
		line("    route %s next-hop %s;", hostPrefix(a), own[family(a)].Addr())
	}
	line("  }\n}")
	return b.String()
}

// exabgp runs in the foreground and is asked nothing.
func exabgp() Process {
	return Process{
		Name: "exabgp", Args: []string{"exabgp", exabgpConfig},
		Env: []string{
			"exabgp.daemon.daemonize=false", "exabgp.daemon.user=root",
			"exabgp.api.cli=false", "exabgp.log.level=WARNING", "exabgp.cache.attributes=false",
		},
	}
}
