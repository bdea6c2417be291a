// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

func TestBackendSuitsEveryMode(t *testing.T) {
	vip := lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.UDP}
	for _, mode := range []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve} {
		svc := &lb.Service{Name: "web", VIP: vip, Forward: mode, MinHealthy: 1,
			Backends: []lb.Backend{Backend(mode, netip.MustParseAddr("10.0.2.21"))}}
		if wrong := svc.Check(); len(wrong) > 0 {
			t.Errorf("%s: %v", mode, wrong)
		}
	}
}

// Every subject is measured once in each round, in reverse order in every second one.
func TestAlternate(t *testing.T) {
	var order []string
	measure := func(s string) error {
		order = append(order, s)
		return nil
	}
	if err := Alternate(t.Context(), 3, []string{"a", "b", "c"}, measure); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "abccbaabc" {
		t.Errorf("order %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := Alternate(ctx, 3, []string{"a", "b"}, func(string) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}
