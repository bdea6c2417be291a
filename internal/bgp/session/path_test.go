// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"strings"
	"testing"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
)

func TestPath(t *testing.T) {
	full := to("10.1.1.1/32", "10.0.2.11")
	full.Attributes = bgp.Attributes{
		Communities:      []bgp.Community{65021<<16 | 100},
		LargeCommunities: []bgp.LargeCommunity{{65021, 1, 2}},
		LocalPreference:  new(uint32(200)), MED: new(uint32(10)), Prepend: 2, LinkBandwidth: 1.25e9,
	}
	leaving := full
	leaving.GracefulShutdown = true
	for name, test := range map[string]struct {
		route    bgp.Route
		asn      uint32
		external bool
		want     string
	}{
		"plain":               {to("10.1.1.1/32", "10.0.2.11"), 65021, true, "i path 65021 10.0.2.11"},
		"IPv6":                {to("fd00:1::1/128", "fd00:2::11"), 65021, true, "MP fd00:2::11 i path 65021"},
		"IPv4 by IPv6":        {to("10.1.1.1/32", "fd00:2::11"), 65021, true, "MP fd00:2::11 i path 65021"},
		"internal, plain":     {to("10.1.1.1/32", "10.0.2.11"), 65021, false, "i 10.0.2.11 pref 100"},
		"external":            {full, 65021, true, "i path 65021 65021 65021 10.0.2.11 med 10 65021:100 LB 65021 65021:1:2"},
		"internal":            {full, 65021, false, "i 10.0.2.11 med 10 pref 200 65021:100 LB 65021 65021:1:2"},
		"external and leaves": {leaving, 65021, true, "i path 65021 65021 65021 10.0.2.11 med 10 65021:100 65535:0 LB 65021 65021:1:2"},
		"internal and leaves": {leaving, 65021, false, "i 10.0.2.11 med 10 pref 0 65021:100 65535:0 LB 65021 65021:1:2"},
		"ASN of 32 bits":      {full, 4200000000, false, "i 10.0.2.11 med 10 pref 200 65021:100 LB 23456 65021:1:2"},
	} {
		t.Run(name, func(t *testing.T) {
			to := negotiated{local: bgp.Local{ASN: test.asn}, external: test.external, longASN: true}
			a, err := to.encode(&Path{Route: test.route})
			if err != nil {
				t.Fatal(err)
			}
			six := test.route.Prefix.Addr().Is6()
			m, err := wire.ParseBGPMessage(a.announcement(six, to.nlri(test.route.Prefix, 0)))
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(m.Body.(*wire.BGPUpdate).PathAttributes); got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
}

// describe names attributes as the tests do.
func describe(attrs []wire.PathAttributeInterface) string {
	var words []string
	say := func(format string, values ...any) { words = append(words, fmt.Sprintf(format, values...)) }
	for _, a := range attrs {
		switch a := a.(type) {
		case *wire.PathAttributeOrigin:
			say("%c", "ie?"[a.Value])
		case *wire.PathAttributeNextHop:
			say("%s", a.Value)
		case *wire.PathAttributeMpReachNLRI:
			say("MP %s", a.Nexthop)
		case *wire.PathAttributeCommunities:
			for _, c := range a.Value {
				say("%s", bgp.Community(c))
			}
		case *wire.PathAttributeLargeCommunities:
			for _, c := range a.Values {
				say("%s", c)
			}
		case *wire.PathAttributeExtendedCommunities:
			say("LB %d", a.Value[0].(*wire.LinkBandwidthExtended).AS)
		case *wire.PathAttributeMultiExitDisc:
			say("med %d", a.Value)
		case *wire.PathAttributeLocalPref:
			say("pref %d", a.Value)
		case *wire.PathAttributeAsPath:
			for _, segment := range a.Value {
				say("path %s", strings.Join(strings.Fields(segment.String()), " "))
			}
		case *wire.PathAttributeAs4Path:
			say("path4 %s", strings.Join(strings.Fields(a.Value[0].String()), " "))
		case *wire.PathAttributeOriginatorId:
			say("originator %s", a.Value)
		case *wire.PathAttributeClusterList:
			say("cluster %s", a.Value)
		default:
			say("%T", a)
		}
	}
	return strings.Join(words, " ")
}
