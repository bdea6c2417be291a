// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"net/netip"
	"testing"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// testAddresses compares the schemas' check of addresses with lb's, which holds for every
// source of services: an address that the API server accepts can be balanced.
func (s *server) testAddresses(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0", "0.0.0.1", "1.1.1.1", "10.0.0.0", "100.64.0.1", "126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0", "169.254.0.1",
		"192.0.2.255", "223.255.255.255", "224.0.0.0", "239.255.255.255", "240.0.0.0", "255.255.255.254", "255.255.255.255",
		"::", "::1", "::2", "::ffff:0:0", "::ffff:10.0.0.1", "::fffd:ffff:ffff", "::1:0:0:0", "64:ff9b::1", "2001:db8::1", "fc00::1", "fe80::1", "fe80::1%eth0",
		"febf::1", "fec0::1", "fe00::1", "ff00::", "ff02::1", "ffff::1", "", "1", "1.1.1", "1.1.1.1.1", "01.1.1.1", "256.1.1.1", ":", "1::1::1", "2001:db8::10000",
	} {
		a, err := netip.ParseAddr(text)
		valid := err == nil && lb.CheckAddress(a) == nil
		samples := map[*samples]string{loadBalancers(): "{address: '" + text + "', forward: ipip}"}
		if bits := "/32"; err == nil {
			if a.Is6() {
				bits = "/128"
			}
			samples[addressPools()] = "{addresses: ['" + text + bits + "']}"
		}
		for k, patch := range samples {
			_, err := s.try(t, k, v1alpha1.GroupVersion(), merge(parse(t, k.minimal), parse(t, patch)))
			if accepted := err == nil; accepted != valid {
				t.Errorf("%s %q: accepted %t, want %t (%v)", k.kind, text, accepted, valid, err)
			}
		}
	}
	for _, c := range addressPools().accepted {
		ranges, _ := parse(t, c.patch)["addresses"].([]any)
		for _, text := range ranges {
			if _, err := alloc.ParseRange(text.(string)); err != nil {
				t.Errorf("accepted, but: %v", err)
			}
		}
	}
}
