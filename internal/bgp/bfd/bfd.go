// SPDX-License-Identifier: Apache-2.0

// Package bfd is Bidirectional Forwarding Detection (RFC 5880): it detects within
// milliseconds that a peer, or the path to it, is down. It has the asynchronous mode
// over UDP, for peers on the same link (RFC 5881) and others (RFC 5883), over IPv4 and
// IPv6, without authentication and echo function. Packages speaker and reflector
// configure the peers with Set, start their sessions with Begin when BGP is
// established, and get an Event for each change. Sessions may outlive BGP's.
//
// Sessions end with the process (the C bit is 0), but a process that is back within
// the detection time resumes them. A session's rules are in session.go, which has
// neither clock nor sockets. A listener receives for all peers of one family and port.
package bfd

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/bgp"
)

// Peer is a peer and how it is watched. Peers are compared by value.
type Peer struct {
	// Address is unicast, unmapped and has no zone.
	Address netip.Addr
	// Local is the source address, of the same family; the zero Addr leaves it to the
	// kernel.
	Local netip.Addr
	// MaxHops is how many hops the peer of a multihop session may be away, 1 to 254;
	// 0 for any number.
	MaxHops uint8
	bgp.BFD
}

// Event is a change of a session's state.
type Event struct {
	Peer netip.Addr
	// Began is when Old began, At when New did.
	Began, At time.Time
	Old, New  bgp.BFDState
	// Diagnostic is why the session went down.
	Diagnostic Diagnostic
	// RemoteAdminDown reports that the peer took the session down on purpose, which
	// says nothing about the path (RFC 5882 §3.2).
	RemoteAdminDown bool
}

// Concerns reports whether the end of a session that was up is about the peer's BGP session
// that was established at since. The BFD of some routers lives only as long as BGP: a BFD
// session that goes down right after BGP's began is left from before, and ending the new
// session for it would repeat for ever. A peer that takes BFD down on purpose says nothing
// about the path (RFC 5882 §3.2). Without BFD, b is nil, an event is left from the
// configuration before.
func (e *Event) Concerns(since time.Time, b *bgp.BFD) bool {
	if b == nil {
		return false
	}
	detection := b.Interval * time.Duration(b.Multiplier)
	return e.Old == bgp.BFDUp && !e.RemoteAdminDown && (e.Began.After(since) || e.At.Sub(since) >= detection)
}

// Diagnostic is why a session last went down (RFC 5880 §4.1).
type Diagnostic uint8

// The diagnostics used here.
const (
	NoDiagnostic          Diagnostic = 0
	DetectionTimeExpired  Diagnostic = 1
	NeighbourSignaledDown Diagnostic = 3
	AdministrativelyDown  Diagnostic = 7
)

// diagnostics are the names in RFC 5880 §4.1 and RFC 9384's registry.
var diagnostics = [...]string{
	"no diagnostic", "control detection time expired", "echo function failed", "neighbour signaled session down",
	"forwarding plane reset", "path down", "concatenated path down", "administratively down",
	"reverse concatenated path down", "mis-connectivity defect",
}

// String is the registry's name of the diagnostic.
func (d Diagnostic) String() string {
	if int(d) < len(diagnostics) {
		return diagnostics[d]
	}
	return fmt.Sprintf("diagnostic %d", uint8(d))
}

// Of returns how a BGP peer with BFD is watched.
func Of(peer *bgp.Peer) Peer {
	// Not from Multihop: BIRD sends multihop packets with the kernel's default TTL.
	p := Peer{Address: peer.Address, Local: peer.LocalAddress, MaxHops: peer.TTLSecurity, BFD: *peer.BFD}
	if p.Path == bgp.ByRoute && (peer.Multihop > 0 || peer.TTLSecurity > 1) {
		p.Path = bgp.Multihop
	}
	return p
}

// route is the current route to a peer.
func (p *Peer) route() (*netlink.Route, error) {
	options := &netlink.RouteGetOptions{SrcAddr: p.Local.AsSlice()}
	routes, err := netlink.RouteGetWithOptions(p.Address.AsSlice(), options)
	if err != nil {
		return nil, err
	}
	return &routes[0], nil
}
