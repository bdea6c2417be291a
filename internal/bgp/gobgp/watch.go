// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"context"
	"fmt"
	"net"
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
	Peer  netip.Addr
	State bgp.SessionState
	// Kept says that the session is lost but its routes are kept, as the peer said
	// that it may restart (RFC 4724 §4.2).
	Kept bool
	// Reason is why a session ended, in words for an operator.
	Reason string
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
		Kept:   s.DisconnectReason == api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART,
		Reason: reasonOf(s),
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

// reasons are the library's.
var reasons = map[api.PeerState_DisconnectReason]string{
	api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:    "hold timer expired",
	api.PeerState_DISCONNECT_REASON_NOTIFICATION_SENT:     "ended by this side",
	api.PeerState_DISCONNECT_REASON_NOTIFICATION_RECEIVED: "ended by the peer",
	api.PeerState_DISCONNECT_REASON_READ_FAILED:           "connection lost",
	api.PeerState_DISCONNECT_REASON_WRITE_FAILED:          "connection lost",
	api.PeerState_DISCONNECT_REASON_RESTART_TIMER_EXPIRED: "peer didn't come back within its restart time",
	api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART:      "connection lost, the peer may be restarting",
	api.PeerState_DISCONNECT_REASON_INVALID_MSG:           "malformed message",
	api.PeerState_DISCONNECT_REASON_BAD_PEER_AS:           "bad peer AS",
	api.PeerState_DISCONNECT_REASON_DECONFIGURED:          "no longer configured",
}

func reasonOf(s *apiutil.PeerState) string {
	text := reasons[s.DisconnectReason]
	if text != "" && s.DisconnectMessage != "" {
		text += fmt.Sprintf(" (%s)", s.DisconnectMessage)
	}
	return text
}

// Accept hands a peer its connection, which is the library's from now on. The
// peer has been added and is active.
func (s *Server) Accept(conn net.Conn) { s.accept <- conn }
