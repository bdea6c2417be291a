// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/osrg/gobgp/v4/api"

	"fairlead.io/fairlead/internal/bgp"
)

// The library has dynamic neighbours of its own, by peer groups. They aren't used:
// they can't be counted, get no password of their range, and take no connection
// in the seconds after a loss. So whoever calls is added as a passive peer, and its
// connection handed over.

const (
	// maxPaths is how many paths to a prefix a router is told at most.
	maxPaths = 255
	// maxPrefixes is how many prefixes of a family a client may announce, those
	// included that aren't taken: twice the services that there may be.
	maxPrefixes = 8192
)

// clientKeys has the addresses by which the library knows clients: several of them
// may have one address of their own, which the library couldn't tell apart. It is
// the prefix that leads nowhere (RFC 6666).
var clientKeys = netip.MustParsePrefix("100::/64")

// ClientKey is the key of the nth client.
func ClientKey(n uint64) netip.Addr {
	key := clientKeys.Addr().As16()
	binary.BigEndian.PutUint64(key[8:], n)
	return netip.AddrFrom16(key)
}

// AddClient adds a client of a reflector under a key, which waits for its
// connection.
func (s *Server) AddClient(ctx context.Context, r *bgp.Reflection, key netip.Addr, client bgp.Peer) error {
	client.Address = key
	peer := reflectedPeer(r, client)
	for _, family := range peer.AfiSafis {
		family.PrefixLimits = &api.PrefixLimit{Family: family.Config.Family, MaxPrefixes: maxPrefixes}
	}
	return s.add(ctx, peer)
}

// AddRouter adds a router that gets what clients announce, several paths to each
// prefix (RFC 7911).
func (s *Server) AddRouter(ctx context.Context, r *bgp.Reflection, router bgp.Peer) error {
	peer := reflectedPeer(r, router)
	for _, family := range peer.AfiSafis {
		family.AddPaths = &api.AddPaths{Config: &api.AddPathsConfig{SendMax: maxPaths}}
	}
	return s.add(ctx, peer)
}

// reflectedPeer is what clients and routers have in common. In iBGP the library
// takes routers for clients too: only those are told originator and cluster, as
// RFC 4456 §8 wants it.
func reflectedPeer(r *bgp.Reflection, p bgp.Peer) *api.Peer {
	peer := apiPeer(&r.Local, &p)
	if !p.External(r.Local) {
		peer.RouteReflector = &api.RouteReflector{RouteReflectorClient: true, RouteReflectorClusterId: r.ClusterID.String()}
	}
	return peer
}

func (s *Server) add(ctx context.Context, peer *api.Peer) error {
	if err := s.bgp.AddPeer(ctx, &api.AddPeerRequest{Peer: peer}); err != nil {
		return fmt.Errorf("peer %s: %w", peer.Conf.NeighborAddress, err)
	}
	return nil
}

// Remove ends the session with a router of that address, or the client of that
// key, and forgets it and its routes.
func (s *Server) Remove(ctx context.Context, key netip.Addr) error {
	if err := s.bgp.DeletePeer(ctx, &api.DeletePeerRequest{Address: key.String()}); err != nil {
		return fmt.Errorf("peer %s: %w", key, err)
	}
	return nil
}
