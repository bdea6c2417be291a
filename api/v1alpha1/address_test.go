// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

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

func TestAssignedAddressName(t *testing.T) {
	for want, of := range map[string]struct {
		address string
		segment *v1alpha1.Segment
	}{
		"192.0.2.1": {"192.0.2.1", nil},
		"2001-0db8-0000-0000-0000-0000-0000-0001": {"2001:db8::1", nil},
		"0000-0000-0000-0000-0000-0000-0000-0000": {"::", nil},
		"10.0.0.1.vlan-7":                         {"10.0.0.1", &v1alpha1.Segment{Type: "vlan", ID: 7}},
	} {
		got := v1alpha1.AssignedAddressName(netip.MustParseAddr(of.address), of.segment)
		if got != want || len(validation.IsDNS1123Subdomain(got)) > 0 {
			t.Errorf("%s: %q, want %q", of.address, got, want)
		}
	}
}
