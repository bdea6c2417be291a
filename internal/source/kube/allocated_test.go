// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/spec"
)

// Only addresses that come or go are changes: each one costs a search through all endpoints.
func TestChangedAddresses(t *testing.T) {
	var (
		a   = newAllocated()
		web = Object{Kind: "Service", Namespace: "a", Name: "web"}
		v4  = spec.Place{Address: netip.MustParseAddr("203.0.113.1")}
		v6  = spec.Place{Address: netip.MustParseAddr("2001:db8::1")}
	)
	for _, step := range []struct {
		places  []spec.Place
		changed int
	}{
		{[]spec.Place{v4}, 1},
		{[]spec.Place{v4}, 0},
		{[]spec.Place{v6}, 2},
		{nil, 1},
		{nil, 0},
	} {
		clear(a.changed)
		if a.set(web, step.places, "main"); len(a.changed) != step.changed {
			t.Errorf("%v: %v have changed, want %d", step.places, a.changed, step.changed)
		}
	}
}
