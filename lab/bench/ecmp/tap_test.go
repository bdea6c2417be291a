// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

func TestParseFrame(t *testing.T) {
	const (
		station = "0200000000ff"
		sender  = "020000000001"
		head4   = "4500001c000040004011" + "0000" + "0a000102"
		head6   = "6000000000081140" + "fd000001000000000000000000000002"
	)
	for name, test := range map[string]struct {
		frame string
		to    string // empty: it is none
	}{
		"ipv4":             {station + sender + "0800" + head4 + "0a010101" + "00", "10.1.1.1"},
		"ipv6":             {station + sender + "86dd" + head6 + "fd000010000100010000000000000001", "fd00:10:1:1::1"},
		"arp":              {station + sender + "0806" + strings.Repeat("00", 28), ""},
		"ipv6 cut short":   {station + sender + "86dd" + head6 + "fd00", ""},
		"no whole header":  {station + sender + "0800" + head4, ""},
		"nothing but zero": {strings.Repeat("00", 64), ""},
	} {
		frame, err := hex.DecodeString(test.frame)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s, to, ok := parseFrame(frame)
		if ok != (test.to != "") {
			t.Errorf("%s: seen %v", name, ok)
		}
		if !ok {
			continue
		}
		want := observation{lb.MAC{2, 0, 0, 0, 0, 0xff}, familyOf(netip.MustParseAddr(test.to))}
		if s != want || to != netip.MustParseAddr(test.to) {
			t.Errorf("%s: %v to %s, want %v to %s", name, s, to, want, test.to)
		}
	}
}
