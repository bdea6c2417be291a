// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

// asTrans replaces an ASN of 32 bits in a field of 16 (RFC 6793 §9).
const asTrans = 23456

// newPath is a route, whose next hop is set, as a peer gets it: an external peer with
// the ASN prepended, an internal one with the local preference.
func newPath(route *bgp.Route, asn uint32, external bool) (*apiutil.Path, error) {
	nlri, err := wire.NewIPAddrPrefix(route.Prefix)
	if err != nil {
		return nil, fmt.Errorf("route %s: %w", route.Prefix, err)
	}
	family := familyOf(route.Prefix)
	hop, err := nextHop(route, family, nlri)
	if err != nil {
		return nil, fmt.Errorf("route %s: next hop %s: %w", route.Prefix, route.NextHop, err)
	}
	attrs := append([]wire.PathAttributeInterface{wire.NewPathAttributeOrigin(wire.BGP_ORIGIN_ATTR_TYPE_IGP), hop},
		transitive(&route.Attributes, asn)...)
	if route.MED != nil {
		attrs = append(attrs, wire.NewPathAttributeMultiExitDisc(*route.MED))
	}
	switch {
	case !external && route.GracefulShutdown:
		attrs = append(attrs, wire.NewPathAttributeLocalPref(0))
	case !external && route.LocalPreference != nil:
		attrs = append(attrs, wire.NewPathAttributeLocalPref(*route.LocalPreference))
	case external && route.Prepend > 0:
		// The library adds the ASN once more.
		asns := slices.Repeat([]uint32{asn}, route.Prepend)
		attrs = append(attrs, wire.NewPathAttributeAsPath([]wire.AsPathParamInterface{
			wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SEQ, asns)}))
	}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attrs}, nil
}

// familyOf is the family of unicast routes to a prefix.
func familyOf(prefix netip.Prefix) wire.Family {
	if prefix.Addr().Is4() {
		return wire.RF_IPv4_UC
	}
	return wire.RF_IPv6_UC
}

// nextHop is the attribute with the next hop: MP_REACH_NLRI, unless prefix and next
// hop are IPv4 (RFC 4760 §3, RFC 8950).
func nextHop(route *bgp.Route, family wire.Family, nlri wire.NLRI) (wire.PathAttributeInterface, error) {
	if family == wire.RF_IPv4_UC && route.NextHop.Is4() {
		return wire.NewPathAttributeNextHop(route.NextHop)
	}
	return wire.NewPathAttributeMpReachNLRI(family, []wire.PathNLRI{{NLRI: nlri}}, route.NextHop)
}

// transitive are the communities of all kinds.
func transitive(a *bgp.Attributes, asn uint32) (attrs []wire.PathAttributeInterface) {
	communities := make([]uint32, 0, len(a.Communities)+1)
	for _, c := range a.Communities {
		communities = append(communities, uint32(c))
	}
	if a.GracefulShutdown {
		communities = append(communities, uint32(bgp.GracefulShutdown))
		slices.Sort(communities)
		communities = slices.Compact(communities)
	}
	if len(communities) > 0 {
		attrs = append(attrs, wire.NewPathAttributeCommunities(communities))
	}
	if len(a.LargeCommunities) > 0 {
		large := make([]*wire.LargeCommunity, len(a.LargeCommunities))
		for i, c := range a.LargeCommunities {
			large[i] = wire.NewLargeCommunity(c[0], c[1], c[2])
		}
		attrs = append(attrs, wire.NewPathAttributeLargeCommunities(large))
	}
	if a.LinkBandwidth > 0 {
		as := uint16(asTrans)
		if asn <= 1<<16-1 {
			as = uint16(asn)
		}
		attrs = append(attrs, wire.NewPathAttributeExtendedCommunities([]wire.ExtendedCommunityInterface{
			wire.NewLinkBandwidthExtended(as, a.LinkBandwidth)}))
	}
	return attrs
}

// path identifies a path to a prefix: by the identifier of RFC 7911, or 0.
type path struct {
	prefix netip.Prefix
	id     uint32
}

func pathOf(p wire.PathNLRI) path { return path{prefixOf(p.NLRI), p.ID} }

// pathsOf are the paths of both families in an UPDATE.
func pathsOf(update *wire.BGPUpdate) (withdrawn, announced []wire.PathNLRI) {
	withdrawn, announced = update.WithdrawnRoutes, update.NLRI
	for _, a := range update.PathAttributes {
		switch a := a.(type) {
		case *wire.PathAttributeMpUnreachNLRI:
			withdrawn = append(withdrawn, a.Value...)
		case *wire.PathAttributeMpReachNLRI:
			announced = append(announced, a.Value...)
		}
	}
	return withdrawn, announced
}

// prefixOf is the prefix of a unicast route; the zero Prefix of others.
func prefixOf(nlri wire.NLRI) netip.Prefix {
	if p, ok := nlri.(*wire.IPAddrPrefix); ok {
		return p.Prefix
	}
	return netip.Prefix{}
}

// nextHopOf is the next hop of an UPDATE.
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
