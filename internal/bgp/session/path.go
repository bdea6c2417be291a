// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

// Path is a route as it is announced to a peer.
type Path struct {
	bgp.Route
	// ID distinguishes the paths to a prefix (RFC 7911 §3); peers that accept one path don't get it.
	ID uint32
	// Origin and ASPath are a reflected route's, without the own ASN.
	Origin uint8
	ASPath []uint32
	// Originator and Cluster are in routes that are reflected to internal peers (RFC 4456 §8); otherwise the zero Addr.
	Originator, Cluster netip.Addr
}

// negotiated has the capabilities that are in both OPENs of a session. It decides how paths are written and read.
type negotiated struct {
	local    bgp.Local
	external bool
	longASN  bool
	// accepts are the families that the peer accepts, paths those with several paths to a prefix.
	accepts, paths  Families
	hops6           bool // IPv6 next hops of IPv4 routes
	gracefulRestart bool
	holdTime        time.Duration // 0 for none (RFC 4271 §4.2)
}

// negotiate returns the capabilities of these options that the peer's OPEN has, too.
func (o *Options) negotiate(open *Open) negotiated {
	n := negotiated{
		local: o.Local, external: o.Peer.External(o.Local), longASN: open.longASN,
		accepts: Families{open.IPv4, open.IPv6}, hops6: open.IPv4OverIPv6,
		gracefulRestart: open.GracefulRestart && o.Peer.RestartTime > 0, holdTime: min(o.Peer.HoldTime, open.HoldTime),
	}
	if o.Paths {
		n.paths = open.paths
	}
	return n
}

// Announce makes routes, which have next hops and different prefixes, all that is announced to the peer; only
// differences are sent. An error is of routes that can't be announced; the others are.
func (s *Session) Announce(routes []bgp.Route) error {
	var invalid error
	paths := make(map[netip.Prefix][]encoded, len(routes))
	for _, route := range routes {
		a, err := s.agreed.encode(&Path{Route: route})
		if err != nil {
			invalid = errors.Join(invalid, err)
			continue
		}
		paths[route.Prefix] = []encoded{{attributes: a}}
	}
	s.out.replace(paths)
	return invalid
}

// Change makes paths, the best one first, all that is announced to a prefix. A peer gets the best one unless it accepts
// several, and none if it doesn't accept the family.
func (s *Session) Change(prefix netip.Prefix, paths []Path) error {
	to := &s.agreed
	var all []encoded
	var invalid error
	for i := range paths {
		p := &paths[i]
		if !to.accepts.Has(prefix.Addr()) || prefix.Addr().Is4() && p.NextHop.Is6() && !to.hops6 {
			continue
		}
		a, err := to.encode(p)
		if err != nil {
			invalid = errors.Join(invalid, err)
			continue
		}
		one := encoded{id: p.ID, attributes: a}
		if !to.paths.Has(prefix.Addr()) {
			one.id = 0
			all = []encoded{one}
			break
		}
		if !slices.ContainsFunc(all, func(o encoded) bool { return o.id == one.id }) {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b encoded) int { return cmp.Compare(a.id, b.id) })
	s.out.change(prefix, all)
	return invalid
}

// nlri is a path to a prefix in a message (RFC 4271 §4.3, RFC 7911 §3).
func (n *negotiated) nlri(prefix netip.Prefix, id uint32) (b []byte) {
	if n.paths.Has(prefix.Addr()) {
		b = binary.BigEndian.AppendUint32(b, id)
	}
	return append(append(b, byte(prefix.Bits())), prefix.Addr().AsSlice()[:(prefix.Bits()+7)/8]...)
}

// encode returns a path's attributes, in the order of their types: an external peer gets the own ASN, an internal one the
// local preference.
func (n *negotiated) encode(p *Path) (a attributes, err error) {
	if !p.NextHop.IsValid() {
		return a, fmt.Errorf("route %s has no next hop", p.Prefix)
	}
	path := p.ASPath
	if n.external {
		path = append(slices.Repeat([]uint32{n.local.ASN}, 1+p.Prepend), path...)
	}
	list := []wire.PathAttributeInterface{wire.NewPathAttributeOrigin(p.Origin), n.asPath(path)}
	if p.Prefix.Addr().Is4() && p.NextHop.Is4() {
		hop, err := wire.NewPathAttributeNextHop(p.NextHop)
		if err != nil {
			return a, fmt.Errorf("route %s: next hop %s: %w", p.Prefix, p.NextHop, err)
		}
		list = append(list, hop)
	} else {
		a.hop = netip.AddrFrom16(p.NextHop.As16())
	}
	if p.MED != nil {
		list = append(list, wire.NewPathAttributeMultiExitDisc(*p.MED))
	}
	if !n.external {
		preference := uint32(bgp.DefaultLocalPreference)
		if p.LocalPreference != nil {
			preference = *p.LocalPreference
		}
		if p.GracefulShutdown {
			preference = 0 // RFC 8326 §4.2
		}
		list = append(list, wire.NewPathAttributeLocalPref(preference))
	}
	list = append(list, communities(&p.Attributes, n.local.ASN)...)
	if !n.external && p.Originator.IsValid() {
		originator, e := wire.NewPathAttributeOriginatorId(p.Originator)
		cluster, e2 := wire.NewPathAttributeClusterList([]netip.Addr{p.Cluster})
		if err := errors.Join(e, e2); err != nil {
			return a, fmt.Errorf("route %s: %w", p.Prefix, err)
		}
		list = append(list, originator, cluster)
	}
	if !n.longASN {
		list = append(list, as4Path(path)...)
	}
	slices.SortStableFunc(list, func(x, y wire.PathAttributeInterface) int { return cmp.Compare(x.GetType(), y.GetType()) })
	var b []byte
	for _, attribute := range list {
		one, err := attribute.Serialize()
		if err != nil {
			return a, fmt.Errorf("route %s: %w", p.Prefix, err)
		}
		b = append(b, one...)
	}
	a.bytes = string(b)
	return a, nil
}

// asPath is the attribute AS_PATH, with AS_TRANS for long ASNs if the peer has none (RFC 6793 §4.2.2).
func (n *negotiated) asPath(path []uint32) wire.PathAttributeInterface {
	var segments []wire.AsPathParamInterface
	for some := range slices.Chunk(path, 255) {
		if n.longASN {
			segments = append(segments, wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SEQ, some))
			continue
		}
		short := make([]uint16, len(some))
		for i, asn := range some {
			short[i] = shortASN(asn)
		}
		segments = append(segments, wire.NewAsPathParam(wire.BGP_ASPATH_ATTR_TYPE_SEQ, short))
	}
	return wire.NewPathAttributeAsPath(segments)
}

// as4Path is the attribute AS4_PATH of a path with long ASNs.
func as4Path(path []uint32) []wire.PathAttributeInterface {
	if !slices.ContainsFunc(path, func(asn uint32) bool { return uint32(shortASN(asn)) != asn }) {
		return nil
	}
	var segments []*wire.As4PathParam
	for some := range slices.Chunk(path, 255) {
		segments = append(segments, wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SEQ, some))
	}
	return []wire.PathAttributeInterface{wire.NewPathAttributeAs4Path(segments)}
}

// communities are the communities of all kinds.
func communities(a *bgp.Attributes, asn uint32) (list []wire.PathAttributeInterface) {
	var standard []uint32
	for _, c := range a.Communities {
		standard = append(standard, uint32(c))
	}
	if a.GracefulShutdown {
		standard = append(standard, uint32(bgp.GracefulShutdown)) // which Communities doesn't have
	}
	if len(standard) > 0 {
		list = append(list, wire.NewPathAttributeCommunities(standard))
	}
	if len(a.LargeCommunities) > 0 {
		large := make([]*wire.LargeCommunity, len(a.LargeCommunities))
		for i, c := range a.LargeCommunities {
			large[i] = wire.NewLargeCommunity(c[0], c[1], c[2])
		}
		list = append(list, wire.NewPathAttributeLargeCommunities(large))
	}
	if a.LinkBandwidth > 0 {
		list = append(list, wire.NewPathAttributeExtendedCommunities([]wire.ExtendedCommunityInterface{
			wire.NewLinkBandwidthExtended(shortASN(asn), a.LinkBandwidth)}))
	}
	return list
}
