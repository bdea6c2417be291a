// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"net/netip"
	"slices"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

// Update has the contents of an UPDATE.
type Update struct {
	Withdrawn []netip.Prefix
	Announced []Announcement
	// EndOfRIB is the family of which the peer has sent all routes (RFC 4724 §2), if the UPDATE only says so.
	EndOfRIB Families
}

// Announcement has the prefixes that an UPDATE announces with one next hop.
type Announcement struct {
	Prefixes []netip.Prefix
	Learned
}

// Learned has the attributes of a received route that a reflector reads.
type Learned struct {
	NextHop netip.Addr
	Origin  uint8
	// ASPath has the ASNs of AS_PATH. With Loop it has the own one, or has sets, which are to be rejected (RFC 9774):
	// or the route comes back from here (RFC 4456 §8).
	ASPath []uint32
	Loop   bool
	bgp.Attributes
	// Size is about how many bytes of memory the attributes take.
	Size int
}

// receiveUpdate reads an UPDATE and hands it over.
func (s *Session) receiveUpdate(message []byte) error {
	if s.o.OnUpdate == nil {
		return nil
	}
	u, err := s.agreed.readUpdate(message)
	if err != nil {
		return err
	}
	if n := s.o.OnUpdate(s, u); n != (Notification{}) {
		return n
	}
	return nil
}

// readUpdate reads an UPDATE. Of a malformed one, the paths are withdrawn, or the malformed attribute is ignored, where
// RFC 7606 has that; otherwise it is an error. None of the attributes that are ignored is read here.
func (n *negotiated) readUpdate(message []byte) (u *Update, err error) {
	defer func() {
		if recover() != nil { // the codec can't validate all that it can parse
			u, err = nil, badUpdate
		}
	}()
	m, err := parse(message, &wire.MarshallingOption{Use2ByteAS: !n.longASN})
	var fault *wire.MessageError
	if err != nil && (!errors.As(err, &fault) || m == nil) {
		return nil, badUpdate
	}
	body := m.Body.(*wire.BGPUpdate)
	if end, family := body.IsEndOfRib(); end && fault == nil {
		u := &Update{}
		u.EndOfRIB.add(family)
		return u, nil
	}
	body.PathAttributes = slices.DeleteFunc(body.PathAttributes, foreign)
	families := map[wire.Family]wire.BGPAddPathMode{wire.RF_IPv4_UC: 0, wire.RF_IPv6_UC: 0}
	if _, err := wire.ValidateUpdateMsg(body, families, n.external, false, true); err != nil {
		if other, ok := errors.AsType[*wire.MessageError](err); ok && (fault == nil || other.Stronger(fault)) {
			fault = other
		}
	}
	withdraw := false
	if fault != nil {
		switch fault.ErrorHandling {
		case wire.ERROR_HANDLING_ATTRIBUTE_DISCARD:
		case wire.ERROR_HANDLING_TREAT_AS_WITHDRAW:
			withdraw = true
			if body.NLRI == nil { // the codec has stopped before them
				return nil, badUpdate
			}
		default:
			return nil, Notification{Code: wire.BGP_ERROR_UPDATE_MESSAGE_ERROR, Subcode: max(1, fault.SubTypeCode)}
		}
	}
	return n.contents(body, withdraw), nil
}

// foreign reports whether an attribute is of another address family: such routes were not asked for, and are ignored.
func foreign(a wire.PathAttributeInterface) bool {
	known := func(afi uint16, safi uint8) bool {
		return safi == wire.SAFI_UNICAST && (afi == wire.AFI_IP || afi == wire.AFI_IP6)
	}
	switch a := a.(type) {
	case *wire.PathAttributeMpReachNLRI:
		return !known(a.AFI, a.SAFI)
	case *wire.PathAttributeMpUnreachNLRI:
		return !known(a.AFI, a.SAFI)
	}
	return false
}

// contents are the paths of an UPDATE, all withdrawn if it is malformed.
func (n *negotiated) contents(body *wire.BGPUpdate, withdraw bool) *Update {
	u := &Update{Withdrawn: prefixes(body.WithdrawnRoutes)}
	received := n.received(body.PathAttributes)
	announce := func(paths []wire.PathNLRI, hop netip.Addr) {
		switch {
		case len(paths) == 0:
		case withdraw:
			u.Withdrawn = append(u.Withdrawn, prefixes(paths)...)
		default:
			received.NextHop = hop
			u.Announced = append(u.Announced, Announcement{prefixes(paths), received})
		}
	}
	var hop netip.Addr
	for _, a := range body.PathAttributes {
		switch a := a.(type) {
		case *wire.PathAttributeNextHop:
			hop = a.Value
		case *wire.PathAttributeMpUnreachNLRI:
			u.Withdrawn = append(u.Withdrawn, prefixes(a.Value)...)
		case *wire.PathAttributeMpReachNLRI:
			announce(a.Value, a.Nexthop)
		}
	}
	announce(body.NLRI, hop)
	return u
}

// prefixes are the prefixes of unicast paths.
func prefixes(paths []wire.PathNLRI) []netip.Prefix {
	list := make([]netip.Prefix, 0, len(paths))
	for _, p := range paths {
		if p, ok := p.NLRI.(*wire.IPAddrPrefix); ok {
			list = append(list, p.Prefix)
		}
	}
	return list
}

// received reads attributes. Communities that repeat count once.
func (n *negotiated) received(list []wire.PathAttributeInterface) (r Learned) {
	var as4 []uint32
	for _, a := range list {
		switch a := a.(type) {
		case *wire.PathAttributeOrigin:
			r.Origin = a.Value
		case *wire.PathAttributeAsPath:
			for _, segment := range a.Value {
				r.Loop = r.Loop || segment.GetType() != wire.BGP_ASPATH_ATTR_TYPE_SEQ
				r.ASPath = append(r.ASPath, segment.GetAS()...)
			}
		case *wire.PathAttributeAs4Path:
			for _, segment := range a.Value {
				as4 = append(as4, segment.GetAS()...)
			}
		case *wire.PathAttributeMultiExitDisc:
			r.MED = new(a.Value)
		case *wire.PathAttributeLocalPref:
			if !n.external { // RFC 4271 §5.1.5
				r.LocalPreference = new(a.Value)
			}
		case *wire.PathAttributeCommunities:
			for _, c := range a.Value {
				if c := bgp.Community(c); c == bgp.GracefulShutdown {
					r.GracefulShutdown = true
				} else {
					r.Communities = append(r.Communities, c)
				}
			}
			slices.Sort(r.Communities)
			r.Communities = slices.Clip(slices.Compact(r.Communities))
		case *wire.PathAttributeLargeCommunities:
			for _, c := range a.Values {
				r.LargeCommunities = append(r.LargeCommunities, bgp.LargeCommunity{c.ASN, c.LocalData1, c.LocalData2})
			}
			slices.SortFunc(r.LargeCommunities, func(x, y bgp.LargeCommunity) int { return slices.Compare(x[:], y[:]) })
			r.LargeCommunities = slices.Clip(slices.Compact(r.LargeCommunities))
		case *wire.PathAttributeExtendedCommunities:
			for _, c := range a.Value {
				if c, ok := c.(*wire.LinkBandwidthExtended); ok {
					r.LinkBandwidth = c.Bandwidth // the last one counts
				}
			}
		case *wire.PathAttributeOriginatorId:
			r.Loop = r.Loop || a.Value == n.local.RouterID
		}
	}
	if before := len(r.ASPath) - len(as4); !n.longASN && len(as4) > 0 && before >= 0 { // RFC 6793 §4.2.3
		r.ASPath = append(slices.Clone(r.ASPath[:before]), as4...)
	}
	r.Loop = r.Loop || slices.Contains(r.ASPath, n.local.ASN)
	r.Size = 64 + 4*len(r.ASPath) + 4*len(r.Communities) + 12*len(r.LargeCommunities)
	return r
}
