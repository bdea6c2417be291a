// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

// Path is one route that a peer announced and that was taken.
type Path struct {
	Prefix        netip.Prefix
	NextHop, From netip.Addr
	// Since is when it came, or last changed.
	Since time.Time
	// Stale says that its peer is gone and may be restarting.
	Stale bool
	// Attributes are for people: "65021:100", "local-pref 200", "med 10".
	Attributes []string
}

// Paths returns what was taken from all peers, in no order.
func (s *Server) Paths() ([]Path, error) {
	var paths []Path
	for _, family := range []wire.Family{wire.RF_IPv4_UC, wire.RF_IPv6_UC} {
		request := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family}
		err := s.bgp.ListPath(request, func(nlri wire.NLRI, known []*apiutil.Path) {
			prefix, err := netip.ParsePrefix(nlri.String())
			if err != nil {
				return // nothing else is in a table of unicast routes
			}
			for _, p := range known {
				paths = append(paths, Path{
					Prefix: prefix, NextHop: nextHopOf(p.Attrs), From: p.PeerAddress,
					Since: time.Unix(p.Age, 0), Stale: p.Stale, Attributes: attributeWords(p.Attrs),
				})
			}
		})
		if err != nil {
			return nil, fmt.Errorf("bgp table: %w", err)
		}
	}
	return paths, nil
}

func nextHopOf(attrs []wire.PathAttributeInterface) netip.Addr {
	for _, a := range attrs {
		switch a := a.(type) {
		case *wire.PathAttributeNextHop:
			return a.Value
		case *wire.PathAttributeMpReachNLRI:
			return a.Nexthop
		}
	}
	return netip.Addr{}
}

// attributeWords tells the attributes that an operator chose.
func attributeWords(attrs []wire.PathAttributeInterface) []string {
	var texts []string
	for _, a := range attrs {
		switch a := a.(type) {
		case *wire.PathAttributeCommunities:
			for _, c := range a.Value {
				texts = append(texts, fmt.Sprintf("%d:%d", c>>16, c&0xffff))
			}
		case *wire.PathAttributeLargeCommunities:
			for _, c := range a.Values {
				texts = append(texts, fmt.Sprintf("%d:%d:%d", c.ASN, c.LocalData1, c.LocalData2))
			}
		case *wire.PathAttributeExtendedCommunities:
			for _, c := range a.Value {
				texts = append(texts, strings.ToLower(c.String()))
			}
		case *wire.PathAttributeLocalPref:
			texts = append(texts, fmt.Sprintf("local-pref %d", a.Value))
		case *wire.PathAttributeMultiExitDisc:
			texts = append(texts, fmt.Sprintf("med %d", a.Value))
		}
	}
	return texts
}

// Describe fills in what the library knows of a peer and its session.
func (s *Server) Describe(ctx context.Context, state *bgp.PeerState) {
	request := &api.ListPeerRequest{Address: state.Address.String(), EnableAdvertised: true}
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
