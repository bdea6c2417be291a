// SPDX-License-Identifier: Apache-2.0

// Package bgp has the types of BGP configuration and state: peers, routes with their
// attributes, and sessions. It is pure, and all packages below it use it.
package bgp

import (
	"math"
	"net/netip"
	"time"
)

// Port is where BGP speakers listen (RFC 4271 §8.2.1).
const Port = 179

// MaxASN is the highest ASN: RFC 7300 reserves the one above.
const MaxASN = 1<<32 - 2

// Local is the speaker itself.
type Local struct {
	// ASN is its autonomous system, RouterID an IPv4 address that is unique in it (RFC
	// 6286).
	ASN      uint32
	RouterID netip.Addr
}

// Defaults of a session.
const (
	DefaultHoldTime = 90 * time.Second
	// DefaultRestartTime is how long a peer keeps the routes of a speaker that may be
	// restarting (RFC 4724 §3). An agent takes seconds.
	DefaultRestartTime = 60 * time.Second
)

// Bounds of Peer.HoldTime (RFC 4271 §4.2), Peer.RestartTime, which fits into 12 bits (RFC
// 4724 §3), and BFD.Interval.
const (
	MinHoldTime    = 3 * time.Second
	MaxHoldTime    = math.MaxUint16 * time.Second
	MaxRestartTime = 4095 * time.Second
	MinBFDInterval = 10 * time.Millisecond
	MaxBFDInterval = time.Minute
)

// Config is a balancer node's BGP configuration.
type Config struct {
	Local
	// Peers have distinct addresses; at least one.
	Peers []Peer
	// Policies are how VIPs are announced: a VIP has the first one whose prefixes
	// contain it. Without one it is announced as a host route without attributes.
	Policies []Policy
	// ShutdownDelay is how long routes carry GRACEFUL_SHUTDOWN before they are withdrawn
	// as planned (RFC 8326); 0 withdraws at once.
	ShutdownDelay time.Duration
}

// Policy is how the VIPs of some prefixes are announced.
type Policy struct {
	// Prefixes are masked; at least one.
	Prefixes []netip.Prefix
	// VLAN is the VLAN (IEEE 802.1Q) in which packets to the VIPs arrive; 0 is the untagged
	// network. With a VLAN, each family of Prefixes has a next hop, and none is aggregated.
	VLAN uint16
	// Aggregate announces the prefix while any VIP in it is served, instead of a host
	// route for each VIP.
	Aggregate bool
	// NextHop4 and NextHop6 are the next hops of IPv4 and IPv6 prefixes; the zero Addr
	// is the speaker's own address. An IPv6 address as NextHop4 needs peers with RFC
	// 8950.
	NextHop4, NextHop6 netip.Addr
	Attributes
}
