// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// RouterKind is what fills a router's table. The empty one is nobody: the routes
// are put there when the lab is built.
type RouterKind string

// The routers that speak BGP.
const (
	FRR RouterKind = "frr" // bgpd, zebra and bfdd
)

// AS numbers of the routers and of the balancers (RFC 6996: private use). Behind
// a reflector all are of the balancers'.
const (
	routerASN   = 65000
	balancerASN = 65021
)

// Sessions between the router and the balancers: who is silent for longer than
// the hold time, or three intervals of BFD, is gone.
const (
	holdTime    = 3 * time.Second
	bfdInterval = 100 * time.Millisecond
)

// shutdownDelay is that of the labs' balancers: more than their routers need to
// choose other routes.
const shutdownDelay = 500 * time.Millisecond

// peering is who speaks BGP with whom in the service network.
type peering struct {
	router RouterKind
	// dynamic has the router take any balancer that calls, instead of those that
	// it is told.
	dynamic bool
	// balancers is how many there are.
	balancers int
}

func (p *peering) check() error {
	switch p.router {
	case FRR, "":
	default:
		return fmt.Errorf("unknown router %q: want frr", p.router)
	}
	if p.router == "" && p.dynamic {
		return fmt.Errorf("dynamic neighbours: the router speaks no BGP")
	}
	return nil
}

// speaks reports whether there is BGP at all.
func (p *peering) speaks() bool { return p.router != "" }

// furnish makes the host a router of its kind.
func (p *peering) furnish(h *Host) {
	switch p.router {
	case FRR:
		p.furnishFRR(h)
	}
}

// announcer is what the nth balancer says of BGP.
func (p *peering) announcer(n int) *bgp.Config {
	bfd := bgp.BFD{Interval: bfdInterval, Multiplier: bgp.DefaultBFD.Multiplier}
	return &bgp.Config{
		Local:         bgp.Local{ASN: balancerASN, RouterID: addresses(serviceNetwork, balancerNumber+n)[0]},
		ShutdownDelay: shutdownDelay,
		Peers: []bgp.Peer{{
			Address: addresses(serviceNetwork, routerNumber)[0], ASN: routerASN,
			HoldTime: holdTime, RestartTime: bgp.DefaultRestartTime, BFD: &bfd,
		}},
	}
}

// learned are the routes of a router to all balancers.
func (p *peering) learned(router string) []LearnedRoute {
	var names []string
	for n := range p.balancers {
		names = append(names, balancerName(n+1))
	}
	var routes []LearnedRoute
	for _, vip := range vips() {
		routes = append(routes, LearnedRoute{Host: router, Prefix: netip.PrefixFrom(vip, vip.BitLen()), Via: names})
	}
	return routes
}

// neighbours are the addresses from which balancers call the router.
func (p *peering) neighbours() []netip.Addr {
	var all []netip.Addr
	for n := range p.balancers {
		all = append(all, addresses(serviceNetwork, balancerNumber+n+1)[0])
	}
	return all
}
