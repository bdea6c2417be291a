// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// RouterKind is the BGP implementation of a router; empty: it has static routes.
type RouterKind string

// The routers that speak BGP.
const (
	FRR   RouterKind = "frr"   // bgpd, zebra and bfdd
	BIRD  RouterKind = "bird"  // version 2
	GoBGP RouterKind = "gobgp" // gobgpd 4, and FRR's zebra; without BFD
)

// AS numbers of routers and balancers (RFC 6996: private use). With a reflector all are
// in the balancers' AS.
const (
	routerASN   = 65000
	balancerASN = 65021
)

// Timers of all sessions. BFD has a multiplier of three.
const (
	holdTime    = 3 * time.Second
	bfdInterval = 100 * time.Millisecond
)

// shutdownDelay is longer than the routers need to select other routes.
const shutdownDelay = 500 * time.Millisecond

// password of all BGP sessions, passwordFile the file in an agent's or reflector's
// directory that has it.
const (
	password     = "correct-horse"
	passwordFile = "bgp.password"
)

// maxPrefixes is how many routes of a family a router takes from a neighbour.
const maxPrefixes = 4096

// maxPaths exceeds the number of balancers of any lab.
const maxPaths = 128

// peering is the BGP sessions in the service network, each with both address families.
type peering struct {
	ECMPOptions
	// translators are the numbers of nodes that translate the source addresses of balancers,
	// direct the numbers of the other balancers. BFD and passwords don't support
	// translation, so the nodes' rules say which pods may connect.
	translators, direct []int
}

func (p *peering) check() error {
	switch {
	case p.Router == "" && (p.Reflector || p.Dynamic || p.PeerIPv6 || p.Foreign):
		return errors.New("no router that speaks BGP is chosen")
	case !slices.Contains([]RouterKind{"", FRR, BIRD, GoBGP}, p.Router):
		return fmt.Errorf("unknown router %q: want frr, bird or gobgp", p.Router)
	case p.Router == GoBGP && p.Dynamic:
		return errors.New("with gobgp the router has no dynamic neighbours")
	case p.Reflector && p.Dynamic:
		return errors.New("behind a reflector the router has no dynamic neighbours")
	}
	return nil
}

// speaks reports whether the router speaks BGP.
func (p *peering) speaks() bool { return p.Router != "" }

// configure configures the host as a router of its kind.
func (p *peering) configure(h *Host) {
	h.Software = string(p.Router)
	r := BGPRouter{
		ASN: p.asn(), RouterID: addresses(serviceNetwork, routerNumber)[0], PeerASN: balancerASN,
		VIPs: p.accepted(), Password: password, Address: p.address(routerNumber), Device: eth1,
	}
	if p.Dynamic {
		r.Networks = []netip.Prefix{p.sessions()}
	} else {
		r.Neighbours = p.neighbours()
	}
	switch p.Router {
	case FRR:
		r.FRR(h)
	case BIRD:
		r.bird(h)
	case GoBGP:
		r.gobgp(h, cmp.Or(p.GoBGPD, "gobgpd"))
	}
}

// asn is the router's.
func (p *peering) asn() uint32 {
	if p.Reflector {
		return balancerASN
	}
	return routerASN
}

// address is the BGP address of a host in the service network.
func (p *peering) address(number int) netip.Addr {
	if p.PeerIPv6 {
		return addresses(serviceNetwork, number)[1]
	}
	return addresses(serviceNetwork, number)[0]
}

// sessions is the prefix of session addresses.
func (p *peering) sessions() netip.Prefix {
	if p.PeerIPv6 {
		return networkAddresses(serviceNetwork, routerNumber)[1].Masked()
	}
	return networkAddresses(serviceNetwork, routerNumber)[0].Masked()
}

// neighbours are the addresses of the router's neighbours.
func (p *peering) neighbours() []netip.Addr {
	if p.Reflector {
		return []netip.Addr{p.address(reflectorNumber)}
	}
	var all []netip.Addr
	for n := range p.Balancers {
		all = append(all, p.address(balancerNumber+n+1))
	}
	if p.Foreign {
		all = append(all, p.address(foreignNumber))
	}
	return all
}

// announcer is the BGP configuration of a balancer, or another announcer, by number, whose
// source address may be translated.
func (p *peering) announcer(number int, translated bool) *bgp.Config {
	peer := p.peer(routerNumber, p.asn())
	if p.Reflector {
		peer = p.peer(reflectorNumber, balancerASN)
	}
	if translated {
		peer.BFD, peer.Password, peer.TTLSecurity = nil, bgp.Secret{}, 2
	}
	return &bgp.Config{
		Local:         bgp.Local{ASN: balancerASN, RouterID: addresses(serviceNetwork, number)[0]},
		ShutdownDelay: shutdownDelay,
		Peers:         []bgp.Peer{peer},
	}
}

// accepted are the prefixes within which routes are taken.
func (p *peering) accepted() []bgp.Acceptance {
	all := []bgp.Acceptance{
		{Prefix: netip.PrefixFrom(vips()[0], 16).Masked(), Shortest: 32}, {Prefix: netip.PrefixFrom(vips()[1], 48).Masked(), Shortest: 128},
	}
	if p.Networks {
		all[0].Shortest, all[1].Shortest = vipNetworkBits4, vipNetworkBits6
	}
	return all
}

// peer is a session with a host by number.
func (p *peering) peer(number int, asn uint32) bgp.Peer {
	return bgp.Peer{
		Address: p.address(number), ASN: asn, HoldTime: holdTime, RestartTime: bgp.DefaultRestartTime,
		Password: bgp.Secret{File: passwordFile}, TTLSecurity: 1,
		BFD: &bgp.BFD{Interval: bfdInterval, Multiplier: bgp.DefaultBFD.Multiplier},
	}
}
