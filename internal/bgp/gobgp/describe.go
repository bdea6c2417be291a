// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"context"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"fairlead.io/fairlead/internal/bgp"
)

// Describe fills in what the library knows of the router of that address, or the
// client of that key, and its session.
func (s *Server) Describe(ctx context.Context, key netip.Addr, state *bgp.PeerState) {
	request := &api.ListPeerRequest{Address: key.String(), EnableAdvertised: true}
	// An error says that the server has ended, and nothing is known of anybody.
	_ = s.bgp.ListPeer(ctx, request, func(p *api.Peer) { describePeer(p, state) })
}

func describePeer(p *api.Peer, state *bgp.PeerState) {
	messages := p.GetState().GetMessages()
	state.MessagesReceived, state.MessagesSent = messages.GetReceived().GetTotal(), messages.GetSent().GetTotal()
	state.UpdatesReceived, state.UpdatesSent = messages.GetReceived().GetUpdate(), messages.GetSent().GetUpdate()
	if state.State != bgp.Established {
		return
	}
	state.GracefulRestart = p.GetGracefulRestart().GetPeerRestartTime() > 0
	state.HoldTime = time.Duration(p.GetTimers().GetState().GetNegotiatedHoldTime()) * time.Second
	// Both are there in an established session.
	state.RouterID, _ = netip.ParseAddr(p.GetState().GetRouterId())
	state.LocalAddress, _ = netip.ParseAddr(p.GetTransport().GetLocalAddress())
	for _, f := range p.GetAfiSafis() {
		state.RoutesReceived += f.GetState().GetReceived()
		state.RoutesAnnounced += f.GetState().GetAdvertised()
	}
}
