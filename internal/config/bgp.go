// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"time"

	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

// Default and bound of bgp.Config.ShutdownDelay: routers converge within some hundred
// milliseconds, over many hops within minutes.
const (
	defaultShutdownDelay = 500 * time.Millisecond
	maxShutdownDelay     = 10 * time.Minute
)

// readBGP reads the node's BGP speaker, its peers and policies.
func readBGP(v value, c *bgp.Config) {
	v.readFields(
		required("asn", &c.ASN, number[uint32](1, bgp.MaxASN)),
		required("routerID", &c.RouterID, identifier("router id")),
		required("peers", &c.Peers, peers),
		optional("announce", &c.Policies, policies),
		shutdownDelay(c),
	)
	for i := range c.Peers {
		checkMultihop(v.at(fmt.Sprintf("peers[%d]", i)), &c.Peers[i], c.Local, v.failedAny("asn"))
	}
}

func shutdownDelay(c *bgp.Config) field {
	c.ShutdownDelay = defaultShutdownDelay
	return optional("shutdownDelay", &c.ShutdownDelay, durationWithin(0, maxShutdownDelay))
}

// identifier reads a router ID or cluster ID, which has the form of an IPv4 address
// (RFC 6286, RFC 4456 §8).
func identifier(what string) reader[netip.Addr] {
	return checked(address, func(a netip.Addr) error {
		if !a.Is4() || a.IsUnspecified() {
			return fmt.Errorf("bad %s %s: want an IPv4 address that is not 0.0.0.0", what, a)
		}
		return nil
	})
}

// checkMultihop rejects multihop for iBGP peers, which may be any number of hops away.
// It needs both ASNs to be valid: localInvalid says that the local one is not.
func checkMultihop(v value, p *bgp.Peer, local bgp.Local, localInvalid bool) {
	if p.Multihop == 0 || p.External(local) || localInvalid || v.failedAny("asn") {
		return
	}
	v.at("multihop").failf("only with eBGP: this peer is in the node's own AS and may be any number of hops away")
}

// peers reads at least one BGP peer, with distinct addresses.
func peers(v value, to *[]bgp.Peer) {
	taken := make(map[netip.Addr]bool)
	nonEmpty("peer", list(func(v value, p *bgp.Peer) {
		readPeer(v, p)
		if p.Address.IsValid() && taken[p.Address] && !v.failedAny("address") {
			v.at("address").failf("%s is the address of another peer", p.Address)
		}
		taken[p.Address] = true
	}))(v, to)
}

func readPeer(v value, p *bgp.Peer) {
	readSession(v, p,
		required("address", &p.Address, checked(address, checkPeerAddress)),
		required("asn", &p.ASN, number[uint32](1, bgp.MaxASN)),
		optional("port", &p.Port, port),
		optional("localAddress", &p.LocalAddress, checked(address, checkPeerAddress)),
		optional("passive", &p.Passive, flag),
		optional("multihop", &p.Multihop, number[uint8](2, math.MaxUint8)),
	)
	checkPeer(v, p)
}

// readSession reads the fields that single peers and ranges of clients have, and more.
func readSession(v value, p *bgp.Peer, more ...field) {
	p.HoldTime, p.RestartTime = bgp.DefaultHoldTime, bgp.DefaultRestartTime
	v.readFields(append(more,
		optional("ttlSecurity", &p.TTLSecurity, number[uint8](1, math.MaxUint8-1)),
		optional("holdTime", &p.HoldTime, seconds(bgp.MinHoldTime, bgp.MaxHoldTime, "for ever")),
		optional("restartTime", &p.RestartTime, seconds(time.Second, bgp.MaxRestartTime, "for not at all")),
		optional("bfd", &p.BFD, bfd),
		optional("passwordFile", &p.Password, passwordFile),
		optional("passwordEnv", &p.Password, passwordEnv),
	)...)
	if p.Password.File != "" && p.Password.Env != "" {
		v.at("passwordEnv").failf("not with passwordFile: want one of them")
	}
}

// checkPeerAddress allows loopback addresses, unlike lb.CheckAddress, for a router on
// the node itself. A link-local address would need a zone.
func checkPeerAddress(a netip.Addr) error {
	if a.IsLoopback() {
		return nil
	}
	if a.IsLinkLocalUnicast() && a.Is6() {
		return fmt.Errorf("%s is a link-local address: want an address without zone", a)
	}
	return lb.CheckAddress(a)
}

// seconds reads whole seconds in a range, or 0.
func seconds(low, high time.Duration, zero string) reader[time.Duration] {
	return checked(duration, func(t time.Duration) error {
		switch {
		case t%time.Second != 0:
			return fmt.Errorf("%s is not a whole number of seconds", t)
		case t != 0 && (t < low || t > high):
			return fmt.Errorf("%s is out of range: want %s to %s, or 0s %s", t, low, high, zero)
		}
		return nil
	})
}

// checkPeer rejects mutually exclusive fields.
func checkPeer(v value, p *bgp.Peer) {
	if p.Multihop != 0 && p.TTLSecurity != 0 {
		v.at("ttlSecurity").failf("not with multihop, which already limits the number of hops")
	}
	if p.Passive && p.Port != 0 {
		v.at("port").failf("not with passive: the peer connects, not this node")
	}
	both := p.Address.IsValid() && p.LocalAddress.IsValid() && !v.failedAny("address", "localAddress")
	if both && p.Address.Is4() != p.LocalAddress.Is4() {
		v.at("localAddress").failf("%s is not of the same family as the peer's address %s", p.LocalAddress, p.Address)
	}
}

// bfd reads true, false, or a mapping of BFD settings.
func bfd(v value, to **bgp.BFD) {
	b, on := bgp.DefaultBFD, true
	switch v.node.(type) {
	case *ast.BoolNode:
		flag(v, &on)
	case *ast.MappingNode:
		v.readFields(
			optional("interval", &b.Interval, durationWithin(bgp.MinBFDInterval, bgp.MaxBFDInterval)),
			optional("multiplier", &b.Multiplier, number[uint8](1, math.MaxUint8)),
			optional("multihop", &b.Path, bfdPath),
		)
	default:
		v.unexpected("true, false or a mapping")
		return
	}
	if on {
		*to = &b
	}
}

func bfdPath(v value, to *bgp.BFDPath) {
	multihop := false
	if flag(v, &multihop); multihop {
		*to = bgp.Multihop
	} else {
		*to = bgp.SingleHop
	}
}

// passwordFile reads the path of a password file, and validates the password.
func passwordFile(v value, to *bgp.Secret) {
	var path string
	if text(v, &path); path == "" {
		return
	}
	to.File = v.resolve(path)
	info, err := os.Stat(to.File)
	switch {
	case err != nil:
		v.failf("%w", err)
		return
	case !info.Mode().IsRegular():
		v.failf("%s: not a regular file", to.File)
		return
	case info.Mode().Perm()&0o004 != 0:
		v.warn(fmt.Sprintf("%s: world-readable", to.File))
	}
	_, err = bgp.Secret{File: to.File}.Read()
	v.check(err)
}

// passwordEnv reads the name of an environment variable with a password, and validates
// the password.
func passwordEnv(v value, to *bgp.Secret) {
	if text(v, &to.Env); to.Env != "" {
		_, err := bgp.Secret{Env: to.Env}.Read()
		v.check(err)
	}
}
