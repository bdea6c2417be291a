// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"strings"

	"fairlead.io/fairlead/internal/bgp"
)

// birdConfig is the name of BIRD's configuration file in a host's directory.
const birdConfig = "bird.conf"

// furnishBIRD lets a host run BIRD. Its control socket is in its directory, where
// "birdc -s DIRECTORY/bird.ctl" finds it.
func (p *peering) furnishBIRD(h *Host) {
	h.Files = map[string]string{birdConfig: p.birdText()}
	h.Processes = append(h.Processes, urgent(Process{
		Name: "bird", Args: []string{"bird", "-f", "-c", birdConfig, "-s", "bird.ctl", "-P", "bird.pid"},
	}))
}

// birdText has two kernel tables with merged routes, BFD, and the neighbours. As
// with FRR those that it is told are watched also while they don't speak BGP, and
// are waited for. FRR prefers other routes to those that will go by itself, BIRD
// is told to (RFC 8326 §4.2).
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
	line("filter leaving { if (%d, %d) ~ bgp_community then bgp_local_pref = 0; accept; }",
		bgp.GracefulShutdown>>16, bgp.GracefulShutdown&0xffff)
	line("template bgp balancer {\n  local %s as %d;\n  passive on;\n  bfd on;", p.address(routerNumber), p.asn())
	line("  hold time %.0f;\n  keepalive time %.0f;", holdTime.Seconds(), (holdTime / 3).Seconds())
	line("  connect delay time 1;\n  error wait time 1, 2;")
	paths := ""
	if p.reflector {
		paths = "add paths rx; "
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		line("  %s { %simport filter leaving; export none; };", family, paths)
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
