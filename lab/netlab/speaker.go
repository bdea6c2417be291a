// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/goccy/go-yaml"

	"fairlead.io/fairlead/internal/bgp"
)

// foreignName is the host that announces its services by ExaBGP, and foreignVIPs the
// number of its own pair of VIPs.
const (
	foreignName = "exabgp"
	foreignVIPs = 9
)

// foreignSpeaker draws a server that announces the balancers' VIPs, and a pair of its
// own, by ExaBGP.
func (s *site) foreignSpeaker(d *drawing) {
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
		Processes: []Process{nginx(), echo(foreignName, served), exabgp()},
	}
	d.plug(&h, Interface{Name: eth0, Addresses: own}, s.mtu)
	d.Hosts = append(d.Hosts, h)
}

// exabgpConfig is the name of ExaBGP's configuration file in a host's directory.
const exabgpConfig = "exabgp.conf"

// exabgpText announces host routes of both families to the first peer, with the host's
// own addresses, IPv4, then IPv6, as next hops.
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

// exabgp runs in the foreground without its API.
func exabgp() Process {
	return Process{
		Name: "exabgp", Args: []string{"exabgp", exabgpConfig},
		Env: []string{
			"exabgp.daemon.daemonize=false", "exabgp.daemon.user=root",
			"exabgp.api.cli=false", "exabgp.log.level=WARNING", "exabgp.cache.attributes=false",
		},
	}
}

// ReflectorFile is the reflector's configuration in its host's directory.
const ReflectorFile = "reflector.yaml"

const (
	reflectorName   = "reflector"
	reflectorSocket = "reflector.sock"
)

// reflector draws the route reflector, which accepts any client in the service network.
func (s *site) reflector(d *drawing) {
	h := Host{
		Name: reflectorName, Role: Reflector,
		Routes:    defaultRoutes(serviceNetwork),
		Files:     map[string]string{ReflectorFile: s.peering.reflectorText()},
		Processes: []Process{reflector()},
		Socket:    reflectorSocket,
	}
	d.plug(&h, Interface{Name: eth0, Addresses: networkAddresses(serviceNetwork, reflectorNumber)}, s.mtu)
	d.Hosts = append(d.Hosts, h)
}

// reflectorText is the reflector's configuration. Clients may announce all VIPs of labs.
func (p *peering) reflectorText() string {
	router := p.peer(routerNumber, p.asn())
	client := mapping(
		"prefix", p.network(), "holdTime", router.HoldTime, "restartTime", router.RestartTime, "bfd", bfdSection(router.BFD),
	)
	if p.behindNAT {
		client = client[:len(client)-1]
	}
	accept := []any{netip.PrefixFrom(vips()[0], 16).Masked(), netip.PrefixFrom(vips()[1], 48).Masked()}
	if p.networks {
		accept = []any{
			mapping("prefix", accept[0], "shortest", vipNetworkBits4), mapping("prefix", accept[1], "shortest", vipNetworkBits6),
		}
	}
	return yamlText(mapping(
		"reflector", mapping("name", reflectorName, "asn", balancerASN, "routerID", addresses(serviceNetwork, reflectorNumber)[0]),
		"clients", []yaml.MapSlice{client},
		"routers", []yaml.MapSlice{peerSection(&router)},
		"accept", accept,
	))
}

// reflector runs a route reflector with the configuration in its directory.
func reflector() Process {
	return Process{Name: reflectorName, Args: []string{
		fairlead, "reflector", "--config", ReflectorFile, "--socket", reflectorSocket,
	}}
}
