// SPDX-License-Identifier: Apache-2.0

package lb_test

import (
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// A VIP of `fairlead node` is address, port and protocol.
func TestParseVIP(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.1.1:80/tcp": "tcp 10.1.1.1:80", "[fd00::1]:53/udp": "udp [fd00::1]:53",
		"10.1.1.1": "", "10.1.1.1/tcp": "", "10.1.1.1:0/tcp": "", "10.1.1.1:80": "", "10.1.1.1:80/sctp": "", "127.0.0.1:80/tcp": "", "fd00::1:53/udp": "",
	} {
		vip, err := lb.ParseVIP(text)
		if (err == nil) != (want != "") || err == nil && vip.String() != want {
			t.Errorf("%s: %s, %v, want %q", text, vip, err, want)
		}
	}
}
