// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"net"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/bgp"
)

// Of is how a BGP peer is watched whose BFD is set.
func Of(peer *bgp.Peer) Peer {
	return Peer{Address: peer.Address, Local: peer.LocalAddress, Multihop: far(peer), BFD: *peer.BFD}
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
