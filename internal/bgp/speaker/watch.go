// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"net"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
)

// watchlist are the peers that BFD watches.
func (s *Speaker) watchlist() (list []bfd.Peer) {
	for _, n := range s.neighbours {
		if peer := n.Peer(); peer.BFD != nil {
			list = append(list, bfd.Peer{
				Address: peer.Address, Local: peer.LocalAddress, Multihop: far(&peer), BFD: *peer.BFD,
			})
		}
	}
	return list
}

// far reports whether routers stand between here and the peer: then BFD has
// another port (RFC 5883 §5). For an internal peer nobody says so but the routes.
func far(peer *bgp.Peer) bool {
	if peer.Multihop > 0 || peer.TTLSecurity > 1 {
		return true
	}
	routes, err := netlink.RouteGet(net.IP(peer.Address.AsSlice()))
	return err == nil && len(routes) > 0 && routes[0].Gw != nil
}

// watched hears of changes of BFD sessions.
func (s *Speaker) watched(event bfd.Event) {
	s.mu.Lock()
	n := s.neighbours[event.Peer]
	s.mu.Unlock()
	if n == nil {
		return
	}
	if event.New == bgp.BFDUp {
		s.log.Info("bfd session up", "peer", event.Peer)
	} else if event.Old == bgp.BFDUp {
		s.log.Warn("bfd session down", "peer", event.Peer, "reason", event.Diagnostic)
	}
	n.Watched(event)
}
