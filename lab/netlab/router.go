// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// RouterKind is the BGP implementation of a router; empty: it has static routes.
type RouterKind string

// The routers that speak BGP.
const (
	FRR   RouterKind = "frr"   // bgpd, zebra and bfdd
	BIRD  RouterKind = "bird"  // version 2
	GoBGP RouterKind = "gobgp" // gobgpd 4, and FRR's zebra; without BFD
)

// AS numbers of routers and balancers (RFC 6996: private use). With a reflector all are
// in the balancers' AS.
const (
	routerASN   = 65000
	balancerASN = 65021
)

// Timers of all sessions. BFD has a multiplier of three.
const (
	holdTime    = 3 * time.Second
	bfdInterval = 100 * time.Millisecond
)

// shutdownDelay is longer than the routers need to select other routes.
const shutdownDelay = 500 * time.Millisecond

// password of all BGP sessions, passwordFile the file in an agent's or reflector's
// directory that has it.
const (
	password     = "correct-horse"
	passwordFile = "bgp.password"
)

// maxPrefixes is how many routes of a family a router takes from a neighbour.
const maxPrefixes = 4096

// maxPaths exceeds the number of balancers of any lab.
const maxPaths = 128

// peering is the BGP sessions in the service network, each with both address families.
type peering struct {
	router RouterKind
	// gobgpd is the program that a GoBGP router runs.
	gobgpd string
	// reflector is between the router and the balancers.
	reflector bool
	// dynamic makes the router accept any balancer instead of configured ones.
	dynamic bool
	// ipv6 uses IPv6 for all sessions.
	ipv6 bool
	// foreign adds a speaker that isn't Fairlead's.
	foreign bool
	// translators are the numbers of nodes that translate the source addresses of balancers,
	// direct the numbers of the other balancers. BFD and passwords don't support
	// translation, so the nodes' rules say which pods may connect.
	translators, direct []int
	// networks says that balancers announce the networks of VIPs, not single addresses.
	networks  bool
	balancers int // their number
}

func (p *peering) check() error {
	switch {
	case p.router == "" && (p.reflector || p.dynamic || p.ipv6 || p.foreign):
		return errors.New("no router that speaks BGP is chosen")
	case !slices.Contains([]RouterKind{"", FRR, BIRD, GoBGP}, p.router):
		return fmt.Errorf("unknown router %q: want frr, bird or gobgp", p.router)
	case p.router == GoBGP && p.dynamic:
		return errors.New("with gobgp the router has no dynamic neighbours")
	case p.reflector && p.dynamic:
		return errors.New("behind a reflector the router has no dynamic neighbours")
	}
	return nil
}

// speaks reports whether the router speaks BGP.
func (p *peering) speaks() bool { return p.router != "" }

// configure configures the host as a router of its kind.
func (p *peering) configure(h *Host) {
	h.Software = string(p.router)
	switch p.router {
	case FRR:
		p.frr().Configure(h)
	case BIRD:
		p.configureBIRD(h)
	case GoBGP:
		p.configureGoBGP(h)
	}
}

// asn is the router's.
func (p *peering) asn() uint32 {
	if p.reflector {
		return balancerASN
	}
	return routerASN
}

// address is the BGP address of a host in the service network.
func (p *peering) address(number int) netip.Addr {
	if p.ipv6 {
		return addresses(serviceNetwork, number)[1]
	}
	return addresses(serviceNetwork, number)[0]
}

// network is the prefix of session addresses.
func (p *peering) network() netip.Prefix {
	if p.ipv6 {
		return networkAddresses(serviceNetwork, routerNumber)[1].Masked()
	}
	return networkAddresses(serviceNetwork, routerNumber)[0].Masked()
}

// neighbours are the addresses of the router's neighbours.
func (p *peering) neighbours() []netip.Addr {
	if p.reflector {
		return []netip.Addr{p.address(reflectorNumber)}
	}
	var all []netip.Addr
	for n := range p.balancers {
		all = append(all, p.address(balancerNumber+n+1))
	}
	if p.foreign {
		all = append(all, p.address(foreignNumber))
	}
	return all
}

// announcer is the BGP configuration of a balancer, or another announcer, by number, whose
// source address may be translated.
func (p *peering) announcer(number int, translated bool) *bgp.Config {
	peer := p.peer(routerNumber, p.asn())
	if p.reflector {
		peer = p.peer(reflectorNumber, balancerASN)
	}
	if translated {
		peer.BFD, peer.Password, peer.TTLSecurity = nil, bgp.Secret{}, 2
	}
	return &bgp.Config{
		Local:         bgp.Local{ASN: balancerASN, RouterID: addresses(serviceNetwork, number)[0]},
		ShutdownDelay: shutdownDelay,
		Peers:         []bgp.Peer{peer},
	}
}

// vips are the prefixes within which routes are taken.
func (p *peering) vips() []bgp.Acceptance {
	all := []bgp.Acceptance{
		{Prefix: netip.PrefixFrom(vips()[0], 16).Masked(), Shortest: 32}, {Prefix: netip.PrefixFrom(vips()[1], 48).Masked(), Shortest: 128},
	}
	if p.networks {
		all[0].Shortest, all[1].Shortest = vipNetworkBits4, vipNetworkBits6
	}
	return all
}

// peer is a session with a host by number.
func (p *peering) peer(number int, asn uint32) bgp.Peer {
	return bgp.Peer{
		Address: p.address(number), ASN: asn, HoldTime: holdTime, RestartTime: bgp.DefaultRestartTime,
		Password: bgp.Secret{File: passwordFile}, TTLSecurity: 1,
		BFD: &bgp.BFD{Interval: bfdInterval, Multiplier: bgp.DefaultBFD.Multiplier},
	}
}

// birdConfig is the name of BIRD's configuration file in a host's directory.
const birdConfig = "bird.conf"

// configureBIRD makes a host run BIRD, for "birdc -s DIRECTORY/bird.ctl".
func (p *peering) configureBIRD(h *Host) {
	h.Files = map[string]string{birdConfig: p.birdText()}
	h.Processes = append(h.Processes, realtime(Process{
		Name: "bird", Args: []string{"bird", "-f", "-c", birdConfig, "-s", "bird.ctl", "-P", "bird.pid"},
	}))
}

// birdText has two kernel tables with merged routes, BFD, and passive neighbours. As
// with FRR, BFD monitors configured neighbours also without a BGP session. FRR
// implements graceful shutdown (RFC 8326 §4.2), BIRD needs a filter.
func (p *peering) birdText() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("router id %s;", addresses(serviceNetwork, routerNumber)[0])
	line("log stderr { info, remote, warning, error, auth, fatal, bug };")
	line("protocol device {}")
	line("protocol direct { ipv4; ipv6; }")
	for _, family := range []string{"ipv4", "ipv6"} {
		line("protocol kernel {\n  merge paths on limit %d;", maxPaths)
		line("  %s { import none; export where source = RTS_BGP; };\n}", family)
	}
	line("protocol bfd {")
	line("  interface \"%s\" { interval %d ms; multiplier 3; idle tx interval 300 ms; };", eth1, bfdInterval.Milliseconds())
	if !p.dynamic {
		for _, a := range p.neighbours() {
			line("  neighbor %s local %s;", a, p.address(routerNumber))
		}
	}
	line("}")
	for i, v := range p.vips() {
		line("define VIPS%d = [ %s{%d,%d} ];", []int{4, 6}[i], v.Prefix, v.Shortest, v.Prefix.Addr().BitLen())
	}
	line("filter vips {\n  if !(net ~ VIPS4 || net ~ VIPS6) then reject;")
	line("  if (%d, %d) ~ bgp_community then bgp_local_pref = 0;\n  accept;\n}", bgp.GracefulShutdown>>16, bgp.GracefulShutdown&0xffff)
	line("template bgp balancer {\n  local %s as %d;\n  password \"%s\";\n  ttl security on;", p.address(routerNumber), p.asn(), password)
	line("  passive on;\n  bfd on;")
	line("  hold time %.0f;\n  keepalive time %.0f;", holdTime.Seconds(), (holdTime / 3).Seconds())
	line("  connect delay time 1;\n  error wait time 1, 2;")
	paths := ""
	if p.reflector {
		paths = "add paths rx; "
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		line("  %s { %simport filter vips; receive limit %d action restart; export none; };", family, paths, maxPrefixes)
	}
	line("}")
	if p.dynamic {
		line("protocol bgp from balancer {\n  neighbor range %s as %d;\n  dynamic name \"balancer\";\n}", p.network(), balancerASN)
		return b.String()
	}
	for _, a := range p.neighbours() {
		line("protocol bgp from balancer { neighbor %s as %d; }", a, balancerASN)
	}
	return b.String()
}

// gobgpConfig is the name of gobgpd's configuration file in a host's directory.
const gobgpConfig = "gobgpd.toml"

// configureGoBGP makes a host run gobgpd, and FRR's zebra, which installs its routes.
func (p *peering) configureGoBGP(h *Host) {
	h.Owner = frrUser
	h.Files = map[string]string{"zebra.conf": "", gobgpConfig: p.gobgpText()}
	h.Processes = append(h.Processes, zebra(),
		afterZebra(Process{Name: "gobgpd", Args: []string{p.gobgpd, "-f", gobgpConfig, "-t", "toml", "--pprof-disable"}}))
}

// gobgpText is passive, without BFD: GoBGP's lives only as long as a BGP session does,
// and would end the next one.
func (p *peering) gobgpText() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("[global.config]\n  as = %d\n  router-id = %q", p.asn(), addresses(serviceNetwork, routerNumber)[0])
	line("[global.use-multiple-paths.config]\n  enabled = true")
	line("[zebra.config]\n  enabled = true\n  url = \"unix:%s\"", workingFolder+zebraSocket)
	line("  redistribute-route-type-list = []\n  version = 6\n  software-name = \"frr8.2\"")
	line("[global.apply-policy.config]\n  import-policy-list = [\"vips\"]")
	line("  default-import-policy = \"reject-route\"\n  default-export-policy = \"reject-route\"")
	line("[[policy-definitions]]\n  name = \"vips\"")
	for i := range p.vips() {
		line("  [[policy-definitions.statements]]\n    name = \"vips%d\"", i)
		line("    [policy-definitions.statements.conditions.match-prefix-set]\n      prefix-set = \"vips%d\"", i)
		line("    [policy-definitions.statements.actions]\n      route-disposition = \"accept-route\"")
	}
	for i, v := range p.vips() {
		line("[[defined-sets.prefix-sets]]\n  prefix-set-name = \"vips%d\"", i)
		line("  [[defined-sets.prefix-sets.prefix-list]]\n    ip-prefix = %q", v.Prefix)
		line("    masklength-range = \"%d..%d\"", v.Shortest, v.Prefix.Addr().BitLen())
	}
	for _, a := range p.neighbours() {
		line("[[neighbors]]\n  [neighbors.config]\n    neighbor-address = %q\n    peer-as = %d\n    auth-password = %q", a, balancerASN, password)
		line("  [neighbors.ttl-security.config]\n    enabled = true\n    ttl-min = 255")
		line("  [neighbors.transport.config]\n    passive-mode = true")
		line("  [neighbors.timers.config]\n    hold-time = %.0f\n    keepalive-interval = %.0f", holdTime.Seconds(), (holdTime / 3).Seconds())
		line("  [neighbors.graceful-restart.config]\n    enabled = true\n    restart-time = 60")
		for _, family := range []string{"ipv4-unicast", "ipv6-unicast"} {
			line("  [[neighbors.afi-safis]]\n    [neighbors.afi-safis.config]\n      afi-safi-name = %q", family)
			line("    [neighbors.afi-safis.mp-graceful-restart.config]\n      enabled = true")
			line("    [neighbors.afi-safis.prefix-limit.config]\n      max-prefixes = %d", maxPrefixes)
			if p.reflector {
				line("    [neighbors.afi-safis.add-paths.config]\n      receive = true")
			}
		}
	}
	return b.String()
}
