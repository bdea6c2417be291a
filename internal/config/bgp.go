// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
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
// It needs both ASNs to be valid: localInvalid is set if the local one is not.
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
	var declared v1alpha1.PeerOptions
	var local netip.Addr
	secret := readSession(v, append(declaredFields(v, &declared),
		optional("localAddress", &local, checked(address, spec.CheckPeerAddress))))
	var found []lb.FieldError
	*p, found = spec.Peer(&declared)
	v.reportFieldErrors(found)
	p.LocalAddress, p.Password = local, secret
	both := p.Address.IsValid() && p.LocalAddress.IsValid() && !v.failedAny("address", "localAddress")
	if both && p.Address.Is4() != p.LocalAddress.Is4() {
		v.at("localAddress").failf("%s is not of the same family as the peer's address %s", p.LocalAddress, p.Address)
	}
}

// readSession reads the fields of a session, and its password.
func readSession(v value, fields []field) (password bgp.Secret) {
	v.readFields(append(fields,
		optional("passwordFile", &password, passwordFile),
		optional("passwordEnv", &password, passwordEnv),
	)...)
	if password.File != "" && password.Env != "" {
		v.at("passwordEnv").failf("not with passwordFile: want one of them")
	}
	return password
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
