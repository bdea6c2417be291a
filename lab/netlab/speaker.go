// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"

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
			exabgpConfig: exabgpText(s.announcer(foreignNumber, false), own, announced),
		},
		Processes: []Process{nginx(), echo(foreignName, served), exabgp()},
	}
	d.plug(&h, Interface{Name: eth0, Addresses: own}, s.MTU)
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
	return render("exabgp.conf", map[string]any{
		"RouterID": c.RouterID, "ASN": c.ASN, "Peer": c.Peers[0], "Own": hostAddresses(own), "Announced": announced,
	})
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
		Files:     map[string]string{ReflectorFile: s.reflectorText(), passwordFile: password + "\n"},
		Processes: []Process{reflector()},
		Socket:    reflectorSocket,
	}
	d.plug(&h, Interface{Name: eth0, Addresses: networkAddresses(serviceNetwork, reflectorNumber)}, s.MTU)
	d.Hosts = append(d.Hosts, h)
}

// reflectorText is the reflector's configuration. Clients may announce all VIPs of labs.
func (p *peering) reflectorText() string {
	var nextHops, direct, translators []netip.Prefix
	for _, own := range networkAddresses(serviceNetwork, routerNumber) {
		nextHops = append(nextHops, own.Masked())
	}
	for _, n := range p.direct {
		direct = append(direct, hostPrefix(p.address(n)))
	}
	for _, n := range p.translators {
		translators = append(translators, hostPrefix(p.address(n)))
	}
	if len(p.translators) == 0 {
		direct = []netip.Prefix{p.sessions()}
	}
	return render(ReflectorFile, map[string]any{
		"ASN": balancerASN, "RouterID": addresses(serviceNetwork, reflectorNumber)[0], "Router": p.address(routerNumber),
		"Direct": direct, "Translators": translators, "VIPs": p.accepted(), "NextHops": nextHops,
	})
}

// reflector runs a route reflector with the configuration in its directory.
func reflector() Process {
	return Process{Name: reflectorName, Args: []string{
		fairlead, "reflector", "--config", ReflectorFile, "--socket", reflectorSocket,
	}}
}
