// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Reflection is the configuration of a route reflector (RFC 4456).
type Reflection struct {
	Local
	// ClusterID marks the routes reflected in this reflector's cluster: an IPv4 address.
	ClusterID netip.Addr
	// Listen are the addresses for clients and passive routers, at least one. Port is
	// theirs, 0 for bgp.Port.
	Listen []netip.Addr
	Port   uint16
	// Clients are the ranges of addresses of clients, at least one. They don't overlap.
	Clients []Range
	// Routers get all routes of the clients, at least one. They have distinct addresses.
	// Their own routes are ignored.
	Routers []Peer
	// Accept are the prefixes that clients may announce, at least one. Others are not
	// reflected.
	Accept []Acceptance
	// NextHops contain next hops that clients may announce besides their own addresses.
	NextHops []netip.Prefix
	// Allowed limits the attributes of clients' routes, so that no client can make its routes
	// preferred to other clients'. Its communities are passed on, others removed, but for
	// GRACEFUL_SHUTDOWN. Its LocalPreference is the greatest one, nil for
	// DefaultLocalPreference; its MED the smallest one, nil to remove all; its LinkBandwidth
	// the greatest one, 0 to remove all.
	Allowed Attributes
	// RestartWait is how long the reflector waits after its restart for the clients known
	// before, until it connects to routers.
	RestartWait time.Duration
}

// Range is a range of addresses of clients, which are passive and have no other
// configuration than the range's.
type Range struct {
	Prefix netip.Prefix
	// MaxClients is how many clients of the range there may be at once.
	MaxClients int
	// Accept, if not empty, replaces the reflection's for these clients.
	Accept []Acceptance
	// Peer has the settings of all clients of the range.
	Peer
}

// Client is the configuration of the client with that address.
func (r *Range) Client(address netip.Addr) Peer {
	client := r.Peer
	client.Address, client.Passive = address, true
	return client
}

// Acceptance is a prefix within which clients may announce.
type Acceptance struct {
	Prefix netip.Prefix
	// Shortest is the minimum length of announced prefixes: the length of an address
	// allows host routes only.
	Shortest int
}

// ListenPort is the port to listen at.
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

// Accepts reports whether the client of an address may announce a prefix with a next hop.
func (r *Reflection) Accepts(client netip.Addr, prefix netip.Prefix, hop netip.Addr) bool {
	accept := r.Accept
	if from := r.Range(client); from != nil && len(from.Accept) > 0 {
		accept = from.Accept
	}
	within := func(p netip.Prefix) bool { return p.Contains(hop) }
	return slices.ContainsFunc(accept, func(a Acceptance) bool { return a.has(prefix) }) &&
		(hop == client || slices.ContainsFunc(r.NextHops, within))
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
	DefaultMaxClients  = 256
	DefaultRestartWait = 10 * time.Second
	// DefaultLocalPreference is the preference of routes without another one.
	DefaultLocalPreference = 100
)
