// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"strings"
)

// gobgpConfig is the name of gobgpd's configuration file in a host's directory.
const gobgpConfig = "gobgpd.toml"

// furnishGoBGP lets a host run gobgpd, and FRR's zebra, which puts what gobgpd
// chooses into the kernel's table.
func (p *peering) furnishGoBGP(h *Host) {
	h.Owner = frrUser
	h.Files = map[string]string{"zebra.conf": "", gobgpConfig: p.gobgpText()}
	h.Processes = append(h.Processes, zebra(),
		behindZebra(Process{Name: "gobgpd", Args: []string{p.gobgpd, "-f", gobgpConfig, "-t", "toml", "--pprof-disable"}}))
}

// gobgpText waits for the neighbours to call. GoBGP's own BFD lives only as long
// as a BGP session does, and would then end the next one: there is none.
func (p *peering) gobgpText() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("[global.config]\n  as = %d\n  router-id = %q", p.asn(), addresses(serviceNetwork, routerNumber)[0])
	line("[global.use-multiple-paths.config]\n  enabled = true")
	line("[zebra.config]\n  enabled = true\n  url = \"unix:%s\"", workingFolder+zebraSocket)
	line("  redistribute-route-type-list = []\n  version = 6\n  software-name = \"frr8.2\"")
	for _, a := range p.neighbours() {
		line("[[neighbors]]\n  [neighbors.config]\n    neighbor-address = %q\n    peer-as = %d", a, balancerASN)
		line("  [neighbors.transport.config]\n    passive-mode = true")
		line("  [neighbors.timers.config]\n    hold-time = %.0f\n    keepalive-interval = %.0f", holdTime.Seconds(), (holdTime / 3).Seconds())
		line("  [neighbors.graceful-restart.config]\n    enabled = true\n    restart-time = 60")
		for _, family := range []string{"ipv4-unicast", "ipv6-unicast"} {
			line("  [[neighbors.afi-safis]]\n    [neighbors.afi-safis.config]\n      afi-safi-name = %q", family)
			line("    [neighbors.afi-safis.mp-graceful-restart.config]\n      enabled = true")
			if p.reflector {
				line("    [neighbors.afi-safis.add-paths.config]\n      receive = true")
			}
		}
	}
	return b.String()
}
