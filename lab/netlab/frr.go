// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead.io/fairlead/internal/bgp"
)

// frrUser is the account of FRR's daemons, frrFolder Debian's folder of them.
const (
	frrUser   = "frr"
	frrFolder = "/usr/lib/frr/"
)

// workingFolder is a host's directory for its processes. FRR needs absolute paths and
// drops root, but only root may read the parents of the host's directory; and the
// names of sockets are limited.
const workingFolder = "/proc/self/cwd/"

// zebraSocket is zebra's socket for other daemons.
const zebraSocket = "zserv.api"

// FRRRouter is a router of FRR: bgpd, zebra and bfdd. Its sessions carry both address
// families. BFD monitors neighbours also without a BGP session, so that the loss of one
// that has just returned is detected at once. The router is passive, which avoids
// connection collisions. It takes routes to VIPs only, and announces nothing.
type FRRRouter struct {
	ASN      uint32
	RouterID netip.Addr
	// PeerASN is the AS number of all neighbours, possibly the router's own.
	PeerASN uint32
	// Neighbours are configured; from Networks any neighbour is accepted.
	Neighbours []netip.Addr
	Networks   []netip.Prefix
	// VIPs are the prefixes within which routes are taken. Password, if not empty, is the
	// sessions' password; they have TTL security then.
	VIPs     []bgp.Acceptance
	Password string
}

// Configure makes a host run the router, for "vtysh --vty_socket DIRECTORY".
func (f FRRRouter) Configure(h *Host) {
	h.Owner = frrUser
	h.Files = map[string]string{
		"zebra.conf": "",
		"bfdd.conf":  frrBFD(),
		"bgpd.conf":  f.bgp(),
	}
	h.Processes = append(h.Processes,
		zebra(),
		afterZebra(realtime(frrDaemon("bfdd", "--bfdctl", workingFolder+"bfdd.sock"))),
		afterZebra(frrDaemon("bgpd")))
}

// frr is the router of the service network.
func (p *peering) frr() FRRRouter {
	f := FRRRouter{
		ASN: p.asn(), RouterID: addresses(serviceNetwork, routerNumber)[0], PeerASN: balancerASN,
		VIPs: p.vips(), Password: password,
	}
	if p.dynamic {
		f.Networks = []netip.Prefix{p.network()}
	} else {
		f.Neighbours = p.neighbours()
	}
	return f
}

// zebra writes the kernel's table. With --v6-rr-semantics it replaces IPv6 routes
// instead of deleting and adding them, which loses packets.
func zebra() Process { return frrDaemon("zebra", "--v6-rr-semantics") }

// afterZebra starts a process when zebra's socket exists. Daemons otherwise retry after
// ten seconds, and messages from bgpd to bfdd, through zebra, are lost until then.
func afterZebra(p Process) Process {
	wait := "until [ -S " + zebraSocket + " ]; do sleep 0.01; done; exec \"$@\""
	p.Args = append([]string{"sh", "-c", wait, "sh"}, p.Args...)
	return p
}

// realtime gives a process real-time priority, where that is allowed: a real router's
// BFD doesn't share processors with balancers, servers, clients and their load.
func realtime(p Process) Process {
	p.Args = append([]string{"sh", "-c", "chrt --rr --pid 1 $$ 2>/dev/null; exec \"$@\"", "sh"}, p.Args...)
	return p
}

// frrDaemon runs a daemon in the foreground, without its TCP terminal.
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
	for i, v := range f.VIPs {
		family := "ip"
		if v.Prefix.Addr().Is6() {
			family = "ipv6"
		}
		line("%s prefix-list vips seq %d permit %s ge %d", family, i+1, v.Prefix, v.Shortest)
	}
	line("ip prefix-list none seq 1 deny any")
	line("ipv6 prefix-list none seq 1 deny any")
	line("router bgp %d", f.ASN)
	line(" bgp router-id %s", f.RouterID)
	line(" no bgp default ipv4-unicast")
	line(" bgp bestpath as-path multipath-relax")
	line(" neighbor balancers peer-group")
	line(" neighbor balancers remote-as %d", f.PeerASN)
	if f.Password != "" {
		line(" neighbor balancers password %s", f.Password)
		line(" neighbor balancers ttl-security hops 1")
	}
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
		line("  neighbor balancers prefix-list vips in")
		line("  neighbor balancers prefix-list none out")
		line("  neighbor balancers maximum-prefix %d", maxPrefixes)
		line(" exit-address-family")
	}
	line("!")
	return b.String()
}
