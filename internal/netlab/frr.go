// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"strings"
)

// frrUser is the account that FRR's daemons change to, and frrFolder where
// Debian keeps them.
const (
	frrUser   = "frr"
	frrFolder = "/usr/lib/frr/"
)

// workingFolder is a host's directory as its processes can name it. FRR wants
// absolute paths and gives root up, but nobody except root may look into the
// directories above the host's; and a socket's name has to be short.
const workingFolder = "/proc/self/cwd/"

// zebraSocket is where other daemons tell zebra their routes.
const zebraSocket = "zserv.api"

// furnishFRR lets a host run FRR. Its sockets are in its directory, where
// "vtysh --vty_socket DIRECTORY" finds them.
func (p *peering) furnishFRR(h *Host) {
	h.Owner = frrUser
	h.Files = map[string]string{
		"zebra.conf": "",
		"bfdd.conf":  frrBFD(),
		"bgpd.conf":  p.frrBGP(),
	}
	h.Processes = append(h.Processes,
		zebra(),
		behindZebra(urgent(frrDaemon("bfdd", "--bfdctl", workingFolder+"bfdd.sock"))),
		behindZebra(frrDaemon("bgpd")))
}

// zebra writes the kernel's table. Unless it is told that the kernel can replace
// IPv6 routes it deletes one and adds it again, and what comes in between is lost.
func zebra() Process { return frrDaemon("zebra", "--v6-rr-semantics") }

// behindZebra starts a process when zebra is there. Others look for it once, and
// then every ten seconds; and what bgpd tells bfdd meanwhile, by way of zebra, is
// never said again.
func behindZebra(p Process) Process {
	wait := "until [ -S " + zebraSocket + " ]; do sleep 0.01; done; exec \"$@\""
	p.Args = append([]string{"sh", "-c", wait, "sh"}, p.Args...)
	return p
}

// urgent runs a process before all others, where that is allowed: a real router's
// BFD doesn't share processors with balancers, servers, clients and their load.
func urgent(p Process) Process {
	p.Args = append([]string{"sh", "-c", "chrt --rr --pid 1 $$ 2>/dev/null; exec \"$@\"", "sh"}, p.Args...)
	return p
}

// frrDaemon stays in the foreground and listens for nobody on TCP.
func frrDaemon(name string, more ...string) Process {
	args := []string{
		frrFolder + name, "-f", workingFolder + name + ".conf", "-i", workingFolder + name + ".pid",
		"-z", workingFolder + zebraSocket, "--vty_socket", workingFolder, "-P", "0", "--log", "stdout",
	}
	return Process{Name: name, Args: append(args, more...)}
}

func frrBFD() string {
	ms := bfdInterval.Milliseconds()
	return fmt.Sprintf("bfd\n profile fast\n  detect-multiplier 3\n  receive-interval %d\n  transmit-interval %[1]d\n exit\n!\n", ms)
}

// frrBGP is the configuration of bgpd. Neighbours that it is told are watched by
// BFD also while they don't speak BGP, so that one that is lost right after it
// came back is missed at once. It waits for them to call: two calls at the same
// time would cost one of them.
func (p *peering) frrBGP() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("router bgp %d", p.asn())
	line(" bgp router-id %s", addresses(serviceNetwork, routerNumber)[0])
	line(" no bgp ebgp-requires-policy")
	line(" no bgp default ipv4-unicast")
	line(" bgp bestpath as-path multipath-relax")
	line(" neighbor balancers peer-group")
	line(" neighbor balancers remote-as %d", balancerASN)
	line(" neighbor balancers timers %.0f %.0f", (holdTime / 3).Seconds(), holdTime.Seconds())
	line(" neighbor balancers advertisement-interval 0")
	line(" neighbor balancers bfd profile fast")
	line(" neighbor balancers passive")
	if p.dynamic {
		line(" bgp listen limit %d", maxPaths)
		line(" bgp listen range %s peer-group balancers", p.network())
	} else {
		for _, a := range p.neighbours() {
			line(" neighbor %s peer-group balancers", a)
		}
	}
	paths := "maximum-paths"
	if p.reflector {
		paths += " ibgp"
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		line(" address-family %s unicast", family)
		line("  %s %d", paths, maxPaths)
		line("  neighbor balancers activate")
		line(" exit-address-family")
	}
	line("!")
	return b.String()
}
