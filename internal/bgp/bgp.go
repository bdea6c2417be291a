// SPDX-License-Identifier: Apache-2.0

// Package bgp has the words in which VIPs are announced to routers: peers, routes
// and their attributes, and the states of sessions. It is pure.
//
// It stands beside the data plane in the story of DESIGN.md §1: below it
// announce decides what this node announces, speaker tells the peers, each kept
// connected by a neighbour, reflector passes on what several speakers say, tcp
// makes the connections, bfd watches that peers live (RFC 5880), and gobgp adapts
// the library that speaks the protocol (RFC 4271).
package bgp

import (
	"net/netip"
	"time"
)

// Port is where BGP speakers listen (RFC 4271 §8.2.1).
const Port = 179

// MaxASN leaves out the last number, which RFC 7300 reserves.
const MaxASN = 1<<32 - 2

// Local is the speaker itself.
type Local struct {
	// ASN is its autonomous system, RouterID an IPv4 address that no other speaker
	// of it has (RFC 6286).
	ASN      uint32
	RouterID netip.Addr
}

// Defaults of a session.
const (
	DefaultHoldTime = 90 * time.Second
	// DefaultRestartTime is how long a peer keeps the routes of a speaker that is
	// gone (RFC 4724 §3): an agent is back within seconds.
	DefaultRestartTime = 60 * time.Second
)
