// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// RouterKind is what fills a router's table. The empty one is nobody: the routes
// are put there when the lab is built.
type RouterKind string

// The routers that speak BGP.
const (
	FRR   RouterKind = "frr"   // bgpd, zebra and bfdd
	BIRD  RouterKind = "bird"  // version 2
	GoBGP RouterKind = "gobgp" // gobgpd 4, and FRR's zebra; without BFD
)

// AS numbers of the routers and of the balancers (RFC 6996: private use). Behind
// a reflector all are of the balancers'.
const (
	routerASN   = 65000
	balancerASN = 65021
)

// Sessions between routers, reflectors and balancers: who is silent for longer
// than the hold time, or than three intervals of BFD, is gone.
const (
	holdTime    = 3 * time.Second
	bfdInterval = 100 * time.Millisecond
)

// shutdownDelay is that of the labs' balancers: more than their routers need to
// choose other routes.
const shutdownDelay = 500 * time.Millisecond

// maxPaths is how many equal routes a router merges: no lab has more balancers.
const maxPaths = 128

// peering is who speaks BGP with whom in the service network. All sessions carry
// both address families.
type peering struct {
	router RouterKind
	// gobgpd is the program that a GoBGP router runs.
	gobgpd string
	// reflector is between the router and the balancers.
	reflector bool
	// dynamic has the router take any balancer that calls, instead of those that
	// it is told.
	dynamic bool
	// ipv6 has all sessions over IPv6.
	ipv6 bool
	// foreign says that there is a speaker that isn't Fairlead's.
	foreign bool
	// behindNAT says that balancers call from one address, which BFD can't follow.
	behindNAT bool
	// balancers is how many there are.
	balancers int
}

func (p *peering) check() error {
	switch {
	case p.router == "" && (p.reflector || p.dynamic || p.ipv6 || p.foreign):
		return errors.New("no router that speaks BGP is chosen")
	case !slices.Contains([]RouterKind{"", FRR, BIRD, GoBGP}, p.router):
		return fmt.Errorf("unknown router %q: want frr, bird or gobgp", p.router)
	case p.router == GoBGP && p.dynamic:
		return errors.New("with gobgp the router has no dynamic neighbours")
	case p.reflector && p.dynamic:
		return errors.New("behind a reflector the router has no dynamic neighbours")
	}
	return nil
}

// speaks reports whether there is BGP at all.
func (p *peering) speaks() bool { return p.router != "" }

// furnish makes the host a router of its kind.
func (p *peering) furnish(h *Host) {
	h.Software = string(p.router)
	switch p.router {
	case FRR:
		p.frr().Furnish(h)
	case BIRD:
		p.furnishBIRD(h)
	case GoBGP:
		p.furnishGoBGP(h)
	}
}

// asn is the router's.
func (p *peering) asn() uint32 {
	if p.reflector {
		return balancerASN
	}
	return routerASN
}

// address is the one at which a host of the service network speaks BGP.
func (p *peering) address(number int) netip.Addr {
	if p.ipv6 {
		return addresses(serviceNetwork, number)[1]
	}
	return addresses(serviceNetwork, number)[0]
}

// network is the one that sessions come from.
func (p *peering) network() netip.Prefix {
	if p.ipv6 {
		return networkAddresses(serviceNetwork, routerNumber)[1].Masked()
	}
	return networkAddresses(serviceNetwork, routerNumber)[0].Masked()
}

// neighbours are the addresses from which the router is called.
func (p *peering) neighbours() []netip.Addr {
	if p.reflector {
		return []netip.Addr{p.address(reflectorNumber)}
	}
	var all []netip.Addr
	for n := range p.balancers {
		all = append(all, p.address(balancerNumber+n+1))
	}
	if p.foreign {
		all = append(all, p.address(foreignNumber))
	}
	return all
}

// announcer is what a balancer, or another announcer, of that number says of BGP.
func (p *peering) announcer(number int) *bgp.Config {
	peer := p.peer(routerNumber, p.asn())
	if p.reflector {
		peer = p.peer(reflectorNumber, balancerASN)
	}
	if p.behindNAT {
		peer.BFD = nil
	}
	return &bgp.Config{
		Local:         bgp.Local{ASN: balancerASN, RouterID: addresses(serviceNetwork, number)[0]},
		ShutdownDelay: shutdownDelay,
		Peers:         []bgp.Peer{peer},
	}
}

// peer is a session with the host of that number.
func (p *peering) peer(number int, asn uint32) bgp.Peer {
	return bgp.Peer{
		Address: p.address(number), ASN: asn, HoldTime: holdTime, RestartTime: bgp.DefaultRestartTime,
		BFD: &bgp.BFD{Interval: bfdInterval, Multiplier: bgp.DefaultBFD.Multiplier},
	}
}
