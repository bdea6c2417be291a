// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"

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

// BGPRouter is a router that takes routes to VIPs from its neighbours, and announces
// nothing. Its sessions carry both address families. The router is passive, which avoids
// connection collisions.
type BGPRouter struct {
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
	// Address is the router's in its sessions, Device the interface; only for BIRD.
	Address netip.Addr
	Device  string
}

// FRR makes a host run bgpd, zebra and bfdd, for "vtysh --vty_socket DIRECTORY". BFD
// monitors neighbours also without a BGP session, so that the loss of one that has just
// returned is detected at once.
func (r BGPRouter) FRR(h *Host) { frr(h, render("bgpd.conf", r)) }

// frr makes a host run bgpd with a configuration, zebra and bfdd.
func frr(h *Host, bgpd string) {
	h.Owner = frrUser
	h.Files = map[string]string{"zebra.conf": "", "bfdd.conf": render("bfdd.conf", nil), "bgpd.conf": bgpd}
	h.Processes = append(h.Processes,
		zebra(),
		afterZebra(realtime(frrDaemon("bfdd", "--bfdctl", workingFolder+"bfdd.sock"))),
		afterZebra(frrDaemon("bgpd")))
}

// bird makes a host run BIRD, for "birdc -s DIRECTORY/bird.ctl". It has two kernel tables
// with merged routes. As with FRR, BFD monitors configured neighbours also without a BGP
// session. FRR implements graceful shutdown (RFC 8326 §4.2), BIRD needs a filter.
func (r BGPRouter) bird(h *Host) {
	h.Files = map[string]string{"bird.conf": render("bird.conf", r)}
	h.Processes = append(h.Processes, realtime(Process{
		Name: "bird", Args: []string{"bird", "-f", "-c", "bird.conf", "-s", "bird.ctl", "-P", "bird.pid"},
	}))
}

// gobgp makes a host run gobgpd, and FRR's zebra, which installs its routes. It has no BFD:
// GoBGP's lives only as long as a BGP session does, and would end the next one.
func (r BGPRouter) gobgp(h *Host, gobgpd string) {
	h.Owner = frrUser
	h.Files = map[string]string{"zebra.conf": "", "gobgpd.toml": render("gobgpd.toml", r)}
	h.Processes = append(h.Processes, zebra(),
		afterZebra(Process{Name: "gobgpd", Args: []string{gobgpd, "-f", "gobgpd.toml", "-t", "toml", "--pprof-disable"}}))
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
