// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"fairlead.io/fairlead/internal/bgp"
)

// The library has dynamic neighbours of its own, by peer groups. They aren't used:
// they can't be counted, get no password of their range, and take no connection
// in the seconds after a loss. So whoever calls is added as a peer, passive and
// by its address, and its connection handed over.

// AddClient adds a client of a reflector, which waits for its connection.
func (s *Server) AddClient(ctx context.Context, r *bgp.Reflection, client bgp.Peer) error {
	return s.addReflected(ctx, r, client, &api.AddPathsConfig{})
}

// AddRouter adds a router that gets what clients announce, several paths to each
// prefix (RFC 7911). Restarting says that it still has routes of an earlier life
// of the reflector, by which packets go (RFC 4724 §4.1).
func (s *Server) AddRouter(ctx context.Context, r *bgp.Reflection, router bgp.Peer, restarting bool) error {
	return s.addReflected(ctx, r, router, &api.AddPathsConfig{SendMax: maxPaths}, func(p *api.Peer) {
		p.GracefulRestart.LocalRestarting = restarting
		p.GracefulRestart.DeferralTime = uint32(deferral / time.Second)
	})
}

// maxPaths is how many paths to a prefix a router is told at most.
const maxPaths = 255

// deferral is how long the library waits for a router's End-of-RIB before it
// announces: clients were waited for before, and from routers nothing is taken.
const deferral = time.Second

func (s *Server) addReflected(ctx context.Context, r *bgp.Reflection, p bgp.Peer, paths *api.AddPathsConfig, also ...func(*api.Peer)) error {
	peer := &api.Peer{
		Conf:            &api.PeerConf{NeighborAddress: p.Address.String(), PeerAsn: p.ASN},
		Transport:       &api.Transport{PassiveMode: true},
		Timers:          &api.Timers{Config: timers(p.HoldTime)},
		GracefulRestart: &api.GracefulRestart{Enabled: p.RestartTime > 0, RestartTime: uint32(p.RestartTime / time.Second)},
		TtlSecurity:     &api.TtlSecurity{Enabled: p.TTLSecurity > 0, TtlMin: 256 - uint32(p.TTLSecurity)},
		EbgpMultihop:    &api.EbgpMultihop{Enabled: p.Multihop > 0, MultihopTtl: uint32(p.Multihop)},
	}
	if !p.External(r.Local) {
		// Towards routers too: only so are originator and cluster told (RFC 4456 §8).
		peer.RouteReflector = &api.RouteReflector{RouteReflectorClient: true, RouteReflectorClusterId: r.ClusterID.String()}
	}
	for _, family := range families() {
		peer.AfiSafis = append(peer.AfiSafis, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: family, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: p.RestartTime > 0}},
			AddPaths:          &api.AddPaths{Config: paths},
		})
	}
	for _, change := range also {
		change(peer)
	}
	if err := s.bgp.AddPeer(ctx, &api.AddPeerRequest{Peer: peer}); err != nil {
		return fmt.Errorf("peer %s: %w", p.Address, err)
	}
	return nil
}

func families() []*api.Family {
	return []*api.Family{
		{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST},
		{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST},
	}
}

// Remove ends the session with a peer and forgets it and its routes.
func (s *Server) Remove(ctx context.Context, peer netip.Addr) error {
	if err := s.bgp.DeletePeer(ctx, &api.DeletePeerRequest{Address: peer.String()}); err != nil {
		return fmt.Errorf("peer %s: %w", peer, err)
	}
	return nil
}

// timers are a hold time's, with three keepalives in it.
func timers(hold time.Duration) *api.TimersConfig {
	seconds := uint64(hold / time.Second)
	return &api.TimersConfig{HoldTime: seconds, KeepaliveInterval: seconds / 3}
}
