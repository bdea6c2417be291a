// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"time"
)

// Config is what a balancer node says of BGP.
type Config struct {
	Local
	// Peers have distinct addresses; at least one.
	Peers []Peer
	// Policies say how VIPs are announced: the first whose prefixes have a VIP is
	// that VIP's. A VIP that none has is announced as a host route without
	// attributes.
	Policies []Policy
	// ShutdownDelay is how long routes carry GRACEFUL_SHUTDOWN before a planned
	// leave withdraws them (RFC 8326); 0 withdraws at once.
	ShutdownDelay time.Duration
}

// Policy is how the VIPs of some prefixes are announced.
type Policy struct {
	// Prefixes are masked; at least one.
	Prefixes []netip.Prefix
	// Aggregate announces the prefix itself while any VIP in it is served, instead
	// of a host route for each VIP.
	Aggregate bool
	// NextHop4 and NextHop6 are the next hops of IPv4 and IPv6 prefixes; the zero
	// Addr is the speaker's own address. An IPv6 address as NextHop4 is for peers
	// that take it (RFC 8950).
	NextHop4, NextHop6 netip.Addr
	Attributes
}
