// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"time"

	"github.com/osrg/gobgp/v4/api"

	"fairlead.io/fairlead/internal/bgp"
)

// deferral bounds how long the library would hold routes back after its own
// restart, which it is never told of.
const deferral = 1 // second

// apiPeer is the peer as the library is told. What concerns the socket is not
// among it, as it isn't the library that makes it.
func apiPeer(local *bgp.Local, peer *bgp.Peer) *api.Peer {
	a := &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: peer.Address.String(), PeerAsn: peer.ASN, LocalAsn: local.ASN},
		Transport: &api.Transport{PassiveMode: true},
		Timers:    &api.Timers{Config: &api.TimersConfig{HoldTime: uint64(peer.HoldTime / time.Second)}},
		AfiSafis:  []*api.AfiSafi{unicast(api.Family_AFI_IP, peer), unicast(api.Family_AFI_IP6, peer)},
	}
	if ttl := peer.TTL(*local); ttl != 0 { // the library would set it to 1
		a.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(ttl)}
	}
	if peer.RestartTime > 0 {
		a.GracefulRestart = &api.GracefulRestart{
			Enabled: true, RestartTime: uint32(peer.RestartTime / time.Second), DeferralTime: deferral,
		}
	}
	return a
}

// unicast is one family of unicast routes.
func unicast(afi api.Family_Afi, peer *bgp.Peer) *api.AfiSafi {
	return &api.AfiSafi{
		Config: &api.AfiSafiConfig{
			Family: &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}, Enabled: true,
		},
		MpGracefulRestart: &api.MpGracefulRestart{
			Config: &api.MpGracefulRestartConfig{Enabled: peer.RestartTime > 0},
		},
	}
}
