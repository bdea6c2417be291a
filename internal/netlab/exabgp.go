// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead.io/fairlead/internal/bgp"
)

// exabgpConfig is the name of ExaBGP's configuration file in a host's directory.
const exabgpConfig = "exabgp.conf"

// exabgpText announces prefixes of both families to the first peer, by way of
// the host's own addresses: a speaker that isn't Fairlead's, beside those that
// are.
func exabgpText(c *bgp.Config, own []netip.Addr, prefixes []netip.Prefix) string {
	peer := c.Peers[0]
	var b strings.Builder
	fmt.Fprintf(&b, "neighbor %s {\n  router-id %s;\n  local-address %[2]s;\n  local-as %[3]d;\n  peer-as %[4]d;\n  hold-time %.0[5]f;\n",
		peer.Address, c.RouterID, c.ASN, peer.ASN, peer.HoldTime.Seconds())
	b.WriteString("  family {\n    ipv4 unicast;\n    ipv6 unicast;\n  }\n  static {\n")
	for _, p := range prefixes {
		hop := own[0]
		if p.Addr().Is6() {
			hop = own[1]
		}
		fmt.Fprintf(&b, "    route %s next-hop %s;\n", p, hop)
	}
	b.WriteString("  }\n}\n")
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
