// SPDX-License-Identifier: Apache-2.0

package file

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

// peers reads BGP neighbours with distinct addresses; at least one.
func peers(to *[]bgp.Peer) reader {
	return func(v value) {
		taken := make(map[netip.Addr]bool)
		nonEmpty(to, "peer", func(v value, p *bgp.Peer) {
			readPeer(v, p)
			if p.Address.IsValid() && taken[p.Address] && !v.broken("address") {
				v.at("address").failf("%s is another peer's as well", p.Address)
			}
			taken[p.Address] = true
		})(v)
	}
}

func readPeer(v value, p *bgp.Peer) {
	p.HoldTime, p.RestartTime = bgp.DefaultHoldTime, bgp.DefaultRestartTime
	v.readFields(
		required("address", checked(address(&p.Address), func() error { return checkSpeaker(p.Address) })),
		required("asn", number(&p.ASN, 1, bgp.MaxASN)),
		optional("port", port(&p.Port)),
		optional("localAddress", checked(address(&p.LocalAddress), func() error { return checkSpeaker(p.LocalAddress) })),
		optional("passive", flag(&p.Passive)),
		optional("multihop", number(&p.Multihop, 2, math.MaxUint8)),
		optional("ttlSecurity", number(&p.TTLSecurity, 1, math.MaxUint8-1)),
		optional("holdTime", holdTime(&p.HoldTime)),
		optional("restartTime", restartTime(&p.RestartTime)),
		optional("bfd", watched(&p.BFD)),
		optional("passwordFile", passwordFile(&p.Password)),
		optional("passwordEnv", passwordEnv(&p.Password)),
	)
	checkPeer(v, p)
}

// holdTime reads how long a peer may be silent.
func holdTime(to *time.Duration) reader {
	return checked(duration(to), func() error {
		return checkSeconds(*to, 3*time.Second, math.MaxUint16*time.Second, "for ever")
	})
}

// restartTime reads how long a peer is asked to keep routes.
func restartTime(to *time.Duration) reader {
	return checked(duration(to), func() error {
		return checkSeconds(*to, time.Second, maxRestartTime, "for not at all")
	})
}

// maxRestartTime is what 12 bits hold (RFC 4724 §3).
const maxRestartTime = 4095 * time.Second

// checkSpeaker allows a router on the node itself, unlike what holds for VIPs. A
// link-local address would need a zone.
func checkSpeaker(a netip.Addr) error {
	if a.IsLoopback() {
		return nil
	}
	if a.IsLinkLocalUnicast() && a.Is6() {
		return fmt.Errorf("%s is a link-local address: want one that needs no zone", a)
	}
	return lb.CheckAddress(a)
}

// checkSeconds allows whole seconds in a range, and 0.
func checkSeconds(t, low, high time.Duration, zero string) error {
	switch {
	case t%time.Second != 0:
		return fmt.Errorf("%s is not a whole number of seconds", t)
	case t != 0 && (t < low || t > high):
		return fmt.Errorf("%s is out of range: want %s to %s, or 0s %s", t, low, high, zero)
	}
	return nil
}

// checkPeer refuses fields that exclude each other.
func checkPeer(v value, p *bgp.Peer) {
	if p.Multihop != 0 && p.TTLSecurity != 0 {
		v.at("ttlSecurity").failf("not with multihop: it says itself how many hops away the peer may be")
	}
	if p.Passive && p.Port != 0 {
		v.at("port").failf("not with passive: the peer calls, not this node")
	}
	checkOnePassword(v, p.Password)
	both := p.Address.IsValid() && p.LocalAddress.IsValid() && !v.broken("address", "localAddress")
	if both && p.Address.Is4() != p.LocalAddress.Is4() {
		v.at("localAddress").failf("%s is of another family than the peer's address %s", p.LocalAddress, p.Address)
	}
}

func checkOnePassword(v value, password bgp.Secret) {
	if password.File != "" && password.Env != "" {
		v.at("passwordEnv").failf("not with passwordFile: want one of them")
	}
}

// Bounds of bgp.BFD.Interval.
const (
	minBFDInterval = 10 * time.Millisecond
	maxBFDInterval = time.Minute
)

// watched reads whether a peer is watched by BFD: true or false, or how.
func watched(to **bgp.BFD) reader {
	return func(v value) {
		b, on := bgp.DefaultBFD, true
		switch v.node.(type) {
		case *ast.BoolNode:
			flag(&on)(v)
		case *ast.MappingNode:
			v.readFields(
				optional("interval", checked(duration(&b.Interval), func() error {
					if b.Interval < minBFDInterval || b.Interval > maxBFDInterval {
						return lb.OutOfRange(b.Interval, minBFDInterval, maxBFDInterval)
					}
					return nil
				})),
				optional("multiplier", number(&b.Multiplier, 1, math.MaxUint8)),
			)
		default:
			v.unexpected("true, false or a mapping")
			return
		}
		if on {
			*to = &b
		}
	}
}

// passwordFile reads where a password is. It is tried at once: what is wrong
// with it is an error of this file.
func passwordFile(to *bgp.Secret) reader {
	return func(v value) {
		var path string
		if text(&path)(v); path == "" {
			return
		}
		to.File = v.besides(path)
		info, err := os.Stat(to.File)
		switch {
		case err != nil:
			v.failf("%w", err)
			return
		case !info.Mode().IsRegular():
			v.failf("%s: not a regular file", to.File)
			return
		case info.Mode().Perm()&0o004 != 0:
			v.warn(fmt.Sprintf("%s: every user of this machine can read it", to.File))
		}
		_, err = bgp.Secret{File: to.File}.Read()
		v.check(err)
	}
}

// passwordEnv reads the name of the environment variable that has a password.
func passwordEnv(to *bgp.Secret) reader {
	return func(v value) {
		if text(&to.Env)(v); to.Env != "" {
			_, err := bgp.Secret{Env: to.Env}.Read()
			v.check(err)
		}
	}
}
