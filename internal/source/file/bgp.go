// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"math"
	"net/netip"
	"time"
)

// BGP says to whom VIPs are announced. This version reads it and announces
// nothing.
type BGP struct {
	// ASN is the node's autonomous system, RouterID an IPv4 address that no other
	// speaker of it has (RFC 6286).
	ASN      uint32
	RouterID netip.Addr
	// Peers have distinct addresses; at least one.
	Peers []Peer
}

// Peer is one BGP neighbour.
type Peer struct {
	Address netip.Addr
	ASN     uint32
	// BFD says whether the peer is watched by bidirectional forwarding detection
	// (RFC 5880).
	BFD bool
	// HoldTime is how long the peer may be silent: whole seconds, at least three,
	// or 0 for ever (RFC 4271 §4.2). The default is 90 seconds.
	HoldTime time.Duration
}

// maxASN leaves out the last number, which RFC 7300 reserves.
const maxASN = math.MaxUint32 - 1

const defaultHoldTime = 90 * time.Second

func (b *BGP) read(v value) {
	v.warn("this version announces nothing: the node is found only by routes that others set")
	v.readFields(
		required("asn", number(&b.ASN, 1, maxASN)),
		required("routerID", checked(address(&b.RouterID), b.checkRouterID)),
		required("peers", b.readPeers),
	)
}

func (b *BGP) checkRouterID() error {
	if !b.RouterID.Is4() || b.RouterID.IsUnspecified() {
		return fmt.Errorf("bad router id %s: want an IPv4 address that is not 0.0.0.0", b.RouterID)
	}
	return nil
}

func (b *BGP) readPeers(v value) {
	taken := make(map[netip.Addr]bool)
	list(&b.Peers, func(v value, p *Peer) {
		p.HoldTime = defaultHoldTime
		v.readFields(
			required("address", checked(address(&p.Address), func() error {
				if taken[p.Address] {
					return fmt.Errorf("%s is another peer's as well", p.Address)
				}
				taken[p.Address] = true
				return p.checkAddress()
			})),
			required("asn", number(&p.ASN, 1, maxASN)),
			optional("bfd", flag(&p.BFD)),
			optional("holdTime", checked(duration(&p.HoldTime), p.checkHoldTime)),
		)
	})(v)
	if b.Peers != nil && len(b.Peers) == 0 {
		v.failf("no peer: want at least one")
	}
}

// checkAddress allows a router on the node itself, unlike what holds for VIPs.
func (p *Peer) checkAddress() error {
	if a := p.Address; a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || a.Zone() != "" {
		return fmt.Errorf("%s can't be a peer: want a unicast address without zone", a)
	}
	return nil
}

func (p *Peer) checkHoldTime() error {
	switch t := p.HoldTime; {
	case t%time.Second != 0:
		return fmt.Errorf("%s is not a whole number of seconds", t)
	case t != 0 && (t < 3*time.Second || t > math.MaxUint16*time.Second):
		return fmt.Errorf("%s is out of range: want 3s to %s, or 0s for ever", t, math.MaxUint16*time.Second)
	}
	return nil
}
