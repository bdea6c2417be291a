// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"
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

// FRRRouter is a router of FRR: bgpd, zebra and bfdd. Its sessions carry both address
// families and are watched by BFD, also while the neighbour doesn't speak BGP, so
// that one that is lost right after it came back is missed at once. It waits for
// neighbours to call: two calls at the same time would cost one of them.
type FRRRouter struct {
	ASN      uint32
	RouterID netip.Addr
	// PeerASN is that of all neighbours. Routes of the router's own AS are merged
	// as others are.
	PeerASN uint32
	// Neighbours are those that it is told, Networks those from which anybody may
	// call.
	Neighbours []netip.Addr
	Networks   []netip.Prefix
}

// Furnish lets a host run the router. Its sockets are in the host's directory, where
// "vtysh --vty_socket DIRECTORY" finds them.
func (f FRRRouter) Furnish(h *Host) {
	h.Owner = frrUser
	h.Files = map[string]string{
		"zebra.conf": "",
		"bfdd.conf":  frrBFD(),
		"bgpd.conf":  f.bgp(),
	}
	h.Processes = append(h.Processes,
		zebra(),
		behindZebra(urgent(frrDaemon("bfdd", "--bfdctl", workingFolder+"bfdd.sock"))),
		behindZebra(frrDaemon("bgpd")))
}

// frr is the router of the service network.
func (p *peering) frr() FRRRouter {
	f := FRRRouter{ASN: p.asn(), RouterID: addresses(serviceNetwork, routerNumber)[0], PeerASN: balancerASN}
	if p.dynamic {
		f.Networks = []netip.Prefix{p.network()}
	} else {
		f.Neighbours = p.neighbours()
	}
	return f
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

// bgp is the configuration of bgpd.
func (f FRRRouter) bgp() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("router bgp %d", f.ASN)
	line(" bgp router-id %s", f.RouterID)
	line(" no bgp ebgp-requires-policy")
	line(" no bgp default ipv4-unicast")
	line(" bgp bestpath as-path multipath-relax")
	line(" neighbor balancers peer-group")
	line(" neighbor balancers remote-as %d", f.PeerASN)
	line(" neighbor balancers timers %.0f %.0f", (holdTime / 3).Seconds(), holdTime.Seconds())
	line(" neighbor balancers advertisement-interval 0")
	line(" neighbor balancers bfd profile fast")
	line(" neighbor balancers passive")
	if len(f.Networks) > 0 {
		line(" bgp listen limit %d", maxPaths)
	}
	for _, n := range f.Networks {
		line(" bgp listen range %s peer-group balancers", n)
	}
	for _, a := range f.Neighbours {
		line(" neighbor %s peer-group balancers", a)
	}
	paths := "maximum-paths"
	if f.PeerASN == f.ASN {
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
