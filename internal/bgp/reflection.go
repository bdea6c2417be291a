// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Reflection is what a route reflector is told (RFC 4456): which routes it takes
// from whom, and to whom it passes them on.
type Reflection struct {
	Local
	// ClusterID marks what this reflector, and others of the same cluster, have
	// passed on: an IPv4 address.
	ClusterID netip.Addr
	// Listen are the addresses at which clients and passive routers call; at least
	// one, IPv4 and IPv6 ones apart. Port is where, 0 for Port.
	Listen []netip.Addr
	Port   uint16
	// Clients are ranges that don't lie within each other: who calls from one of
	// them is a client. At least one.
	Clients []Range
	// Routers get all routes that clients announce. They have distinct addresses,
	// and what they announce themselves goes nowhere. At least one.
	Routers []Peer
	// Accept are the prefixes that clients may announce; at least one. All else
	// stays with the reflector.
	Accept []Acceptance
	// NextHops, if there are any, have all next hops that clients may name.
	NextHops []netip.Prefix
	// RestartWait is how long the reflector waits after its own restart for clients
	// that it had, before it tells routers what there is.
	RestartWait time.Duration
}

// Range is where clients come from: neighbours that nobody names one by one. The
// fields that Peer has too mean what they mean there.
type Range struct {
	Prefix netip.Prefix
	ASN    uint32
	// Most is how many clients of the range there may be at once.
	Most        int
	Password    Secret
	TTLSecurity uint8
	HoldTime    time.Duration
	RestartTime time.Duration
	BFD         *BFD
}

// Peer is the client of that address.
func (r *Range) Peer(address netip.Addr) Peer {
	return Peer{
		Address: address, ASN: r.ASN, Passive: true, Password: r.Password, TTLSecurity: r.TTLSecurity,
		HoldTime: r.HoldTime, RestartTime: r.RestartTime, BFD: r.BFD,
	}
}

// Acceptance is a prefix within which clients may announce.
type Acceptance struct {
	Prefix netip.Prefix
	// Shortest is the length that announced prefixes have at least: that of
	// addresses allows host routes only.
	Shortest int
}

// ListenPort is where clients call.
func (r *Reflection) ListenPort() uint16 { return cmp.Or(r.Port, Port) }

// Range returns the range that an address is in, nil if it is in none.
func (r *Reflection) Range(address netip.Addr) *Range {
	for i := range r.Clients {
		if r.Clients[i].Prefix.Contains(address) {
			return &r.Clients[i]
		}
	}
	return nil
}

// Accepts reports whether clients may announce a prefix with a next hop.
func (r *Reflection) Accepts(prefix netip.Prefix, hop netip.Addr) bool {
	within := func(p netip.Prefix) bool { return p.Contains(hop) }
	return slices.ContainsFunc(r.Accept, func(a Acceptance) bool { return a.has(prefix) }) &&
		(len(r.NextHops) == 0 || slices.ContainsFunc(r.NextHops, within))
}

func (a *Acceptance) has(p netip.Prefix) bool {
	return a.Prefix.Contains(p.Addr()) && p.Bits() >= a.Shortest && p.Bits() >= a.Prefix.Bits()
}

// Router returns the router of that address, nil if there is none.
func (r *Reflection) Router(address netip.Addr) *Peer {
	for i := range r.Routers {
		if r.Routers[i].Address == address {
			return &r.Routers[i]
		}
	}
	return nil
}

// Defaults of a reflection.
const (
	DefaultMost        = 256
	DefaultRestartWait = 10 * time.Second
)
