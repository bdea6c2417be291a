// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"time"
)

// SessionState is a state of RFC 4271 §8.2.2.
type SessionState string

// The states. A session that waits for the next attempt is idle.
const (
	Idle        SessionState = "idle"
	Connect     SessionState = "connect"
	Active      SessionState = "active"
	OpenSent    SessionState = "opensent"
	OpenConfirm SessionState = "openconfirm"
	Established SessionState = "established"
)

// BFDState is a state of RFC 5880 §6.2.
type BFDState string

// The states; a peer without BFD has the empty one.
const (
	BFDAdminDown BFDState = "admindown"
	BFDDown      BFDState = "down"
	BFDInit      BFDState = "init"
	BFDUp        BFDState = "up"
)

// PeerState is the state of a peer.
type PeerState struct {
	Address netip.Addr `json:"address"`
	// ASN is the configured one.
	ASN uint32 `json:"asn"`
	// Dynamic is set for a client of a reflector, which has no configuration of its own.
	Dynamic bool `json:"dynamic,omitempty"`
	// LocalAddress, RouterID, HoldTime and GracefulRestart are of the established
	// session; GracefulRestart is set if the peer keeps routes over a restart.
	LocalAddress    netip.Addr    `json:"localAddress,omitzero"`
	RouterID        netip.Addr    `json:"routerID,omitzero"`
	HoldTime        time.Duration `json:"holdTime,omitzero"`
	GracefulRestart bool          `json:"gracefulRestart,omitempty"`

	State SessionState `json:"state"`
	// Since is when the session was established, or ended; zero if it never was
	// established.
	Since time.Time `json:"since,omitzero"`
	// Reason is why the session is not established, for an operator: "connection
	// refused", "received NOTIFICATION: administrative reset"; empty while it is.
	Reason string `json:"reason,omitempty"`
	// NextTry is when the next attempt to connect is due.
	NextTry time.Time `json:"nextTry,omitzero"`
	// Flaps counts established sessions that ended.
	Flaps uint64 `json:"flaps"`

	// BFD is the state of the peer's BFD session, BFDSince when the state began, BFDReason
	// why it is not up, BFDFlaps how often it went down.
	BFD       BFDState  `json:"bfd,omitempty"`
	BFDSince  time.Time `json:"bfdSince,omitzero"`
	BFDReason string    `json:"bfdReason,omitempty"`
	BFDFlaps  uint64    `json:"bfdFlaps,omitempty"`

	// Counters of messages since the agent started, and of routes now.
	MessagesReceived uint64 `json:"messagesReceived"`
	MessagesSent     uint64 `json:"messagesSent"`
	UpdatesReceived  uint64 `json:"updatesReceived"`
	UpdatesSent      uint64 `json:"updatesSent"`
	RoutesReceived   uint64 `json:"routesReceived"`
	RoutesAnnounced  uint64 `json:"routesAnnounced"`

	// OmittedRoutes are not announced to this peer, for OmittedReason: it doesn't accept
	// their family, or they have no next hop towards it.
	OmittedRoutes uint64 `json:"omittedRoutes,omitempty"`
	OmittedReason string `json:"omittedReason,omitempty"`
}
