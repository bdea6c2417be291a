// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// RouteCounts sums up Routes.
type RouteCounts struct {
	// Enabled says that the configuration has a BGP section.
	Enabled bool   `json:"enabled"`
	ASN     uint32 `json:"asn,omitempty"`
	// Established counts peers with a session, of Peers that are configured or came
	// by themselves.
	Peers       int `json:"peers"`
	Established int `json:"established"`
	// Announced counts prefixes that are announced, of Routes that would be.
	Routes    int `json:"routes"`
	Announced int `json:"announced"`
}

// Routes is what the node announces, and to whom.
type Routes struct {
	// Enabled says that the configuration has a BGP section; all else is zero or
	// empty without one.
	Enabled  bool       `json:"enabled"`
	ASN      uint32     `json:"asn,omitempty"`
	RouterID netip.Addr `json:"routerID,omitzero"`
	// Announcements are sorted by prefix, Peers by address.
	Announcements []Announcement  `json:"announcements"`
	Peers         []bgp.PeerState `json:"peers"`
}

// Announcement is a prefix that is announced, or would be.
type Announcement struct {
	Prefix netip.Prefix `json:"prefix"`
	// Services are the names of those that the prefix is announced for.
	Services []string `json:"services"`
	// From are the clients that announce it to a route reflector, of which each next
	// hop of a prefix is an announcement; an agent has none.
	From []netip.Addr `json:"from,omitempty"`
	// Announced says that the prefix is in force, Since when it became so, or ceased
	// to be; Peers are those with an established session, which have been told.
	Announced bool         `json:"announced"`
	Since     time.Time    `json:"since,omitzero"`
	Peers     []netip.Addr `json:"peers"`
	// Reason is why it is not announced, or soon will not be: "web: not programmed
	// yet", "web: 0 of 3 backends healthy, 1 wanted", "node drained", "damped for
	// 4s".
	Reason string `json:"reason,omitempty"`
	// GracefulShutdown says that peers were told that it will go (RFC 8326).
	GracefulShutdown bool `json:"gracefulShutdown,omitempty"`
	// NextHop is the given one; the zero Addr is the node's own.
	NextHop netip.Addr `json:"nextHop,omitzero"`
	// Attributes are for people: "65021:100", "local-pref 200", "med 10", "prepend 2".
	Attributes []string `json:"attributes"`
	// Withdrawals counts how often it was withdrawn.
	Withdrawals uint64 `json:"withdrawals"`
}
