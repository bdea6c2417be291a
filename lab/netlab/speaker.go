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
	announced := stray()
	for _, a := range served {
		announced = append(announced, hostPrefix(a))
	}
	h := Host{
		Name: foreignName, Role: Server,
		Loopback: served,
		Routes:   defaultRoutes(serviceNetwork),
		Files: map[string]string{
			nginxConfig:  nginxText(foreignName, webPort),
			exabgpConfig: exabgpText(s.peering.announcer(foreignNumber, false), own, announced),
		},
		Processes: []Process{nginx(), echo(foreignName, served), exabgp()},
	}
	d.plug(&h, Interface{Name: eth0, Addresses: own}, s.mtu)
	d.Hosts = append(d.Hosts, h)
}

// exabgpConfig is the name of ExaBGP's configuration file in a host's directory.
const exabgpConfig = "exabgp.conf"

// stray are prefixes that a router must not take: without VIPs, or more than host routes.
func stray() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("198.51.100.1/32"),
		netip.MustParsePrefix("10.1.64.0/18"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("2001:db8:5::/48"),
		netip.MustParsePrefix("2001:db8:5::1/128"), netip.MustParsePrefix("fd00:10:1:5::/64"),
	}
}

// exabgpText announces prefixes of both families to the first peer, with the host's own
// addresses, IPv4, then IPv6, as next hops.
func exabgpText(c *bgp.Config, own, announced []netip.Prefix) string {
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
	line("  md5-password \"%s\";\n  outgoing-ttl 255;\n  incoming-ttl 255;", password)
	line("  family {\n    ipv4 unicast;\n    ipv6 unicast;\n  }\n  static {")
	for _, prefix := range announced {
		line("    route %s next-hop %s;", prefix, own[family(prefix.Addr())].Addr())
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
		Files:     map[string]string{ReflectorFile: s.peering.reflectorText(), passwordFile: password + "\n"},
		Processes: []Process{reflector()},
		Socket:    reflectorSocket,
	}
	d.plug(&h, Interface{Name: eth0, Addresses: networkAddresses(serviceNetwork, reflectorNumber)}, s.mtu)
	d.Hosts = append(d.Hosts, h)
}

// masked are the prefixes' networks.
func masked(prefixes []netip.Prefix) (networks []netip.Prefix) {
	for _, p := range prefixes {
		networks = append(networks, p.Masked())
	}
	return networks
}

// reflectorText is the reflector's configuration. Clients may announce all VIPs of labs.
func (p *peering) reflectorText() string {
	router := p.peer(routerNumber, p.asn())
	var clients, accept []yaml.MapSlice
	client := func(prefix netip.Prefix, more ...any) {
		fields := []any{"prefix", prefix, "holdTime", router.HoldTime, "restartTime", router.RestartTime}
		clients = append(clients, mapping(append(fields, more...)...))
	}
	direct := []netip.Prefix{p.network()}
	if len(p.translators) > 0 {
		direct = nil
	}
	for _, n := range p.direct {
		direct = append(direct, hostPrefix(p.address(n)))
	}
	for _, prefix := range direct {
		client(prefix, "ttlSecurity", 1, "bfd", bfdSection(router.BFD), "passwordFile", passwordFile)
	}
	for _, n := range p.translators {
		client(hostPrefix(p.address(n)), "ttlSecurity", 2, "unauthenticated", true)
	}
	for _, v := range p.vips() {
		accept = append(accept, mapping("prefix", v.Prefix, "shortest", v.Shortest))
	}
	return yamlText(mapping(
		"reflector", mapping("name", reflectorName, "asn", balancerASN, "routerID", addresses(serviceNetwork, reflectorNumber)[0]),
		"clients", clients,
		"routers", []yaml.MapSlice{peerSection(&router)},
		"accept", accept,
		"nextHops", masked(networkAddresses(serviceNetwork, routerNumber)),
	))
}

// reflector runs a route reflector with the configuration in its directory.
func reflector() Process {
	return Process{Name: reflectorName, Args: []string{
		fairlead, "reflector", "--config", ReflectorFile, "--socket", reflectorSocket,
	}}
}
