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
					Since: time.Unix(p.Age, 0), Stale: p.Stale, Attributes: describe(p.Attrs),
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

// describe tells the attributes that an operator chose.
func describe(attrs []wire.PathAttributeInterface) []string {
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

// Session is what the library knows of a peer's session.
type Session struct {
	RouterID, LocalAddress netip.Addr
	HoldTime               time.Duration
	// GracefulRestart says that the peer keeps routes over a restart.
	GracefulRestart bool
	// Restarting says that the peer is gone and its routes are kept.
	Restarting bool
	// NotificationsSent counts sessions that this side ended.
	NotificationsSent uint64

	MessagesReceived, MessagesSent uint64
	UpdatesReceived, UpdatesSent   uint64
	// RoutesReceived are those that the peer announces, RoutesAccepted those of them
	// that were taken, RoutesAnnounced those that it was told.
	RoutesReceived, RoutesAccepted, RoutesAnnounced uint64
}

// Session describes a peer's session; false if there is no such peer.
func (s *Server) Session(ctx context.Context, peer netip.Addr) (Session, bool) {
	var session Session
	found := false
	err := s.bgp.ListPeer(ctx, &api.ListPeerRequest{Address: peer.String(), EnableAdvertised: true}, func(p *api.Peer) {
		session, found = sessionOf(p), true
	})
	return session, found && err == nil
}

func sessionOf(p *api.Peer) Session {
	s := Session{
		GracefulRestart:   p.GetGracefulRestart().GetPeerRestartTime() > 0,
		Restarting:        p.GetGracefulRestart().GetPeerRestarting(),
		HoldTime:          time.Duration(p.GetTimers().GetState().GetNegotiatedHoldTime()) * time.Second,
		NotificationsSent: p.GetState().GetMessages().GetSent().GetNotification(),
		MessagesReceived:  p.GetState().GetMessages().GetReceived().GetTotal(),
		MessagesSent:      p.GetState().GetMessages().GetSent().GetTotal(),
		UpdatesReceived:   p.GetState().GetMessages().GetReceived().GetUpdate(),
		UpdatesSent:       p.GetState().GetMessages().GetSent().GetUpdate(),
	}
	// Neither is there before the first session.
	s.RouterID, _ = netip.ParseAddr(p.GetState().GetRouterId())
	s.LocalAddress, _ = netip.ParseAddr(p.GetTransport().GetLocalAddress())
	for _, f := range p.GetAfiSafis() {
		s.RoutesReceived += f.GetState().GetReceived()
		s.RoutesAccepted += f.GetState().GetAccepted()
		s.RoutesAnnounced += f.GetState().GetAdvertised()
	}
	return s
}
