// SPDX-License-Identifier: Apache-2.0

package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// message is an UPDATE with a body.
func message(body []byte) []byte {
	m := binary.BigEndian.AppendUint16(slices.Clone(marker), uint16(headerSize+len(body)))
	return append(append(m, wire.BGP_MSG_UPDATE), body...)
}

// attributesOf are the attributes of an internal peer's route by 10.0.2.11, and more.
func attributesOf(more ...byte) []byte {
	return append([]byte{
		0x40, 1, 1, 0, // ORIGIN IGP
		0x40, 2, 0, // AS_PATH, empty
		0x40, 3, 4, 10, 0, 2, 11, // NEXT_HOP
	}, more...)
}

// announcing is the body of an UPDATE that announces 10.1.1.1/32.
func announcing(attributes []byte) []byte {
	body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attributes)))
	return append(append(body, attributes...), 32, 10, 1, 1, 1)
}

// Errors in an UPDATE are handled as RFC 7606 has it for each attribute: the route is withdrawn, the attribute is ignored, or
// the session ends.
func TestUpdateErrors(t *testing.T) {
	const announced, withdrawn, ends = "announced", "withdrawn", "ends"
	both := []byte{0x80, 14, 25, 0, 2, 1, 16, 0xfd, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0, 16, 0xfd, 1}
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"nothing wrong":                  {announcing(attributesOf()), announced},
		"AGGREGATOR too short (§7.7)":    {announcing(attributesOf(0xc0, 7, 1, 0)), announced},
		"two LOCAL_PREFs (§3 g)":         {announcing(attributesOf(0x40, 5, 4, 0, 0, 0, 1, 0x40, 5, 4, 0, 0, 0, 2)), announced},
		"unknown optional attribute":     {announcing(attributesOf(0xc0, 200, 1, 0)), announced},
		"bad ORIGIN (§7.1)":              {announcing(slices.Replace(attributesOf(), 3, 4, 9)), withdrawn},
		"no AS_PATH (§3 d)":              {announcing(slices.Delete(attributesOf(), 4, 7)), withdrawn},
		"no NEXT_HOP (§3 d)":             {announcing(attributesOf()[:7]), withdrawn},
		"MED too short (§7.4)":           {announcing(attributesOf(0x80, 4, 1, 0)), withdrawn},
		"LOCAL_PREF too short (§7.5)":    {announcing(attributesOf(0x40, 5, 1, 0)), withdrawn},
		"communities too short (§7.8)":   {announcing(attributesOf(0xc0, 8, 3, 1, 2, 3)), withdrawn},
		"attribute too long":             {announcing(attributesOf(0xc0, 8, 200, 1, 2, 3)), ends}, // as the codec reads no NLRI after it
		"two MP_REACH_NLRIs (§3 g)":      {announcing(attributesOf(append(slices.Clone(both), both...)...)), ends},
		"MP_REACH_NLRI cut off (§7.11)":  {announcing(attributesOf(0x80, 14, 3, 0, 2, 1)), ends},
		"prefix too long (§5.3)":         {append(announcing(attributesOf()), 33, 1, 2, 3, 4, 5), ends},
		"attributes longer than message": {[]byte{0, 0, 1, 0}, ends},
		"withdrawn longer than message":  {[]byte{1, 0, 0, 0}, ends},
	} {
		t.Run(name, func(t *testing.T) {
			agreed := negotiated{local: balancer, longASN: true}
			got := ""
			u, err := agreed.readUpdate(message(c.body))
			switch n, _ := errors.AsType[Notification](err); {
			case n.Code == wire.BGP_ERROR_UPDATE_MESSAGE_ERROR:
				got = ends
			case err != nil:
				t.Fatal(err)
			case len(u.Announced) == 1 && len(u.Withdrawn) == 0:
				got = announced
			case len(u.Announced) == 0 && len(u.Withdrawn) == 1:
				got = withdrawn
			}
			if got != c.want {
				t.Errorf("%s, want %s: %+v, %v", got, c.want, u, err)
			}
		})
	}
}

// A route has the ASNs of AS_PATH; long ones are in AS4_PATH, if the peer has none in AS_PATH (RFC 6793 §4.2.3). A
// path with the own ASN, or with a set (RFC 9774), is a loop or of one.
func TestASPath(t *testing.T) {
	attributes := func(path ...byte) []byte {
		return append([]byte{0x40, 1, 1, 0, 0x40, 3, 4, 10, 0, 2, 11, 0x40, 2, byte(len(path))}, path...)
	}
	for name, c := range map[string]struct {
		attributes []byte
		longASN    bool
		want       string
	}{
		"sequence":   {attributes(2, 2, 0, 0, 0xfd, 0xe8, 0, 1, 0, 0), true, "[65000 65536] false"},
		"set":        {attributes(1, 1, 0, 0, 0xfd, 0xe8), true, "[65000] true"},
		"own ASN":    {attributes(2, 1, 0, 0, 0xfd, 0xfd), true, "[65021] true"},
		"short ASNs": {attributes(2, 1, 0xfd, 0xe8), false, "[65000] false"},
		"AS4_PATH": {append(attributes(2, 2, 0xfd, 0xe8, 0x5b, 0xa0), 0xc0, 17, 6, 2, 1, 0, 1, 0, 0), false,
			"[65000 65536] false"},
	} {
		t.Run(name, func(t *testing.T) {
			agreed := negotiated{local: balancer, external: true, longASN: c.longASN}
			u, err := agreed.readUpdate(message(announcing(c.attributes)))
			if err != nil || len(u.Announced) != 1 {
				t.Fatalf("%+v, %v", u, err)
			}
			if got := fmt.Sprint(u.Announced[0].ASPath, " ", u.Announced[0].Loop); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
