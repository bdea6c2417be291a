// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Heard is a route that a client announces.
type Heard struct {
	NextHop netip.Addr
	// Since is when it came, or last changed.
	Since time.Time
	// Attributes are for people: "65021:100", "local-pref 200", "med 10".
	Attributes []string
}

// Heard returns what the client announces, be it accepted or not. The library has
// a table too, but nobody can read it while it changes.
func (l *Link) Heard() map[netip.Prefix]Heard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.heard)
}

// hear applies an UPDATE to what the client announces. One that announces too much
// is about to be thrown out by the library.
func (l *Link) hear(update *wire.BGPUpdate) {
	withdrawn, announced := pathsOf(update)
	now := Heard{NextHop: nextHopOf(update.PathAttributes), Since: time.Now(), Attributes: attributeWords(update.PathAttributes)}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range withdrawn {
		delete(l.heard, prefixOf(n.NLRI))
	}
	for _, n := range announced {
		if len(l.heard) <= 2*maxPrefixes {
			l.heard[prefixOf(n.NLRI)] = now
		}
	}
}

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

// attributeWords tells the attributes that an operator chose.
func attributeWords(attrs []wire.PathAttributeInterface) []string {
	var texts []string
	for _, a := range attrs {
		switch a := a.(type) {
		case *wire.PathAttributeCommunities:
			for _, c := range a.Value {
				texts = append(texts, fmt.Sprintf("%d:%d", c>>16, c&0xffff))
			}
		case *wire.PathAttributeLargeCommunities:
			for _, c := range a.Values {
				texts = append(texts, fmt.Sprintf("%d:%d:%d", c.ASN, c.LocalData1, c.LocalData2))
			}
		case *wire.PathAttributeExtendedCommunities:
			for _, c := range a.Value {
				texts = append(texts, strings.ToLower(c.String()))
			}
		case *wire.PathAttributeLocalPref:
			texts = append(texts, fmt.Sprintf("local-pref %d", a.Value))
		case *wire.PathAttributeMultiExitDisc:
			texts = append(texts, fmt.Sprintf("med %d", a.Value))
		}
	}
	return texts
}
