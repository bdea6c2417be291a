// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"slices"
)

// Route is one prefix that is announced to all peers.
type Route struct {
	Prefix netip.Prefix
	// NextHop is where packets are to be sent; the zero Addr is the speaker's own
	// address of the prefix's family on the way to the peer.
	NextHop netip.Addr
	Attributes
}

// Equal reports whether peers would see no difference.
func (r *Route) Equal(o *Route) bool {
	return r.Prefix == o.Prefix && r.NextHop == o.NextHop && r.Attributes.Equal(&o.Attributes)
}

// Attributes are the path attributes of a route that a speaker may choose.
type Attributes struct {
	// Communities (RFC 1997) and LargeCommunities (RFC 8092) are sorted and
	// distinct.
	Communities      []Community
	LargeCommunities []LargeCommunity
	// LocalPreference is told to iBGP peers; nil is 100. MED is told to all; nil is
	// none.
	LocalPreference, MED *uint32
	// Prepend is how many times more the own ASN stands in the path that eBGP peers
	// see: 0 to 16.
	Prepend int
	// LinkBandwidth in bytes a second weighs the route among equals
	// (draft-ietf-idr-link-bandwidth); 0 is none.
	LinkBandwidth float32
	// GracefulShutdown asks peers to prefer any other route, as this one will go
	// (RFC 8326): the community GRACEFUL_SHUTDOWN, and LOCAL_PREF 0.
	GracefulShutdown bool
}

// Equal compares by value.
func (a *Attributes) Equal(o *Attributes) bool {
	same := func(x, y *uint32) bool { return x == y || x != nil && y != nil && *x == *y }
	return slices.Equal(a.Communities, o.Communities) && slices.Equal(a.LargeCommunities, o.LargeCommunities) &&
		same(a.LocalPreference, o.LocalPreference) && same(a.MED, o.MED) &&
		a.Prepend == o.Prepend && a.LinkBandwidth == o.LinkBandwidth && a.GracefulShutdown == o.GracefulShutdown
}
