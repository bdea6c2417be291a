// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/netip"
	"testing"
)

// Only addresses that come or go are changes: each one costs a search through all endpoints.
func TestChangedAddresses(t *testing.T) {
	var (
		a   = newAllocated()
		web = Object{Kind: "Service", Namespace: "a", Name: "web"}
		v4  = netip.MustParseAddr("203.0.113.1")
		v6  = netip.MustParseAddr("2001:db8::1")
	)
	for _, step := range []struct {
		addresses []netip.Addr
		changed   int
	}{
		{[]netip.Addr{v4}, 1},
		{[]netip.Addr{v4}, 0},
		{[]netip.Addr{v6}, 2},
		{nil, 1},
		{nil, 0},
	} {
		clear(a.changed)
		if a.set(web, step.addresses); len(a.changed) != step.changed {
			t.Errorf("%v: %v have changed, want %d", step.addresses, a.changed, step.changed)
		}
	}
}
