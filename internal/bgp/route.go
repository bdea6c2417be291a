// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Route is one prefix that is announced to all peers.
type Route struct {
	Prefix netip.Prefix
	// NextHop is where packets are sent; the zero Addr is the speaker's own address of
	// the prefix's family towards the peer.
	NextHop netip.Addr
	Attributes
}

// Equal compares by value.
func (r *Route) Equal(o *Route) bool {
	return r.Prefix == o.Prefix && r.NextHop == o.NextHop && r.Attributes.Equal(&o.Attributes)
}

// Attributes are the configurable path attributes of a route.
type Attributes struct {
	// Communities (RFC 1997) and LargeCommunities (RFC 8092) are sorted and
	// distinct.
	Communities      []Community
	LargeCommunities []LargeCommunity
	// LocalPreference is sent to iBGP peers; nil is 100. MED is sent to all; nil is none.
	LocalPreference, MED *uint32
	// Prepend is how many more times the own ASN is in the path sent to eBGP peers: 0 to
	// MaxPrepend.
	Prepend int
	// LinkBandwidth in bytes a second weighs the route among equals
	// (draft-ietf-idr-link-bandwidth); 0 is none.
	LinkBandwidth float32
	// GracefulShutdown makes peers prefer any other route, as this one will be withdrawn
	// (RFC 8326): the community GRACEFUL_SHUTDOWN, and LOCAL_PREF 0.
	GracefulShutdown bool
}

// MaxPrepend bounds Attributes.Prepend: many networks filter longer paths.
const MaxPrepend = 16

// Equal compares by value.
func (a *Attributes) Equal(o *Attributes) bool {
	same := func(x, y *uint32) bool { return x == y || x != nil && y != nil && *x == *y }
	return slices.Equal(a.Communities, o.Communities) && slices.Equal(a.LargeCommunities, o.LargeCommunities) &&
		same(a.LocalPreference, o.LocalPreference) && same(a.MED, o.MED) &&
		a.Prepend == o.Prepend && a.LinkBandwidth == o.LinkBandwidth && a.GracefulShutdown == o.GracefulShutdown
}

// Community is a standard community (RFC 1997): "65021:100".
type Community uint32

// GracefulShutdown marks routes that will be withdrawn (RFC 8326 §5).
const GracefulShutdown Community = 65535 << 16

// String is the notation of routers.
func (c Community) String() string { return fmt.Sprintf("%d:%d", c>>16, c&0xffff) }

// LargeCommunity is a large community (RFC 8092): "65021:1:2".
type LargeCommunity [3]uint32

// String is the notation of routers.
func (c LargeCommunity) String() string { return fmt.Sprintf("%d:%d:%d", c[0], c[1], c[2]) }

// AddCommunity adds the standard or large community of a text. It is an error if the
// community is there already, or is GRACEFUL_SHUTDOWN.
func (a *Attributes) AddCommunity(text string) error {
	if strings.Count(text, ":") > 1 {
		parts, ok := numbers(text, 3, 32)
		if !ok {
			return fmt.Errorf("bad large community %q: want three numbers up to 4294967295, as 65021:1:2", text)
		}
		return insert(&a.LargeCommunities, LargeCommunity(parts), func(c, d LargeCommunity) int { return slices.Compare(c[:], d[:]) })
	}
	parts, ok := numbers(text, 2, 16)
	if !ok {
		return fmt.Errorf("bad community %q: want two numbers up to 65535, as 65021:100", text)
	}
	c := Community(parts[0]<<16 | parts[1])
	if c == GracefulShutdown {
		return fmt.Errorf("%s is GRACEFUL_SHUTDOWN, which is set while the node drains", c)
	}
	return insert(&a.Communities, c, cmp.Compare)
}

// insert adds an element to a sorted list that doesn't have it.
func insert[T any](list *[]T, one T, compare func(T, T) int) error {
	at, found := slices.BinarySearchFunc(*list, one, compare)
	if found {
		return fmt.Errorf("%v is given twice", one)
	}
	*list = slices.Insert(*list, at, one)
	return nil
}

// numbers reads count decimal numbers with colons between them.
func numbers(text string, count, bits int) ([]uint32, bool) {
	fields := strings.Split(text, ":")
	if len(fields) != count {
		return nil, false
	}
	parts := make([]uint32, count)
	for i, field := range fields {
		n, err := strconv.ParseUint(field, 10, bits)
		if err != nil {
			return nil, false
		}
		parts[i] = uint32(n)
	}
	return parts, true
}
