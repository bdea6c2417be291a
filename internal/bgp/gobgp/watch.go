// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"context"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"fairlead.io/fairlead/internal/bgp"
)

// Change is what became of a peer's session.
type Change struct {
	// Peer is a router's address, or a client's key.
	Peer  netip.Addr
	State bgp.SessionState
	// Kept says that the session is lost but its routes are kept, as the peer said
	// that it may restart (RFC 4724 §4.2).
	Kept bool
	// Removed says that the peer was removed, and didn't end by itself.
	Removed bool
}

// Watch tells of every change, one after the other, until ctx ends, and when a
// peer has told all of its routes of one family. Neither may wait for a session.
func (s *Server) Watch(ctx context.Context, changed func(Change), told func(netip.Addr)) error {
	return s.bgp.WatchEvent(ctx, server.WatchEventMessageCallbacks{
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
			if e.Type == apiutil.PEER_EVENT_STATE {
				changed(changeOf(&e.Peer.State))
			}
		},
		OnPathEor: func(p *apiutil.Path, _ time.Time) { told(p.PeerAddress) },
	}, server.WatchPeer(), server.WatchEor(false))
}

func changeOf(s *apiutil.PeerState) Change {
	return Change{
		Peer: s.NeighborAddress, State: stateOf(s.SessionState),
		Kept:    s.DisconnectReason == api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART,
		Removed: s.DisconnectReason == api.PeerState_DISCONNECT_REASON_UNSPECIFIED,
	}
}

// stateOf is the word for a state of the library.
func stateOf(state wire.FSMState) bgp.SessionState {
	switch state {
	case wire.BGP_FSM_CONNECT:
		return bgp.Connect
	case wire.BGP_FSM_ACTIVE:
		return bgp.Active
	case wire.BGP_FSM_OPENSENT:
		return bgp.OpenSent
	case wire.BGP_FSM_OPENCONFIRM:
		return bgp.OpenConfirm
	case wire.BGP_FSM_ESTABLISHED:
		return bgp.Established
	default:
		return bgp.Idle
	}
}
