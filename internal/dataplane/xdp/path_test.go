// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"log/slog"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// In NAT mode nothing is needed but the backend's address.
func TestProbesOfNAT(t *testing.T) {
	svc := manyBackends(vip4, 2)
	svc.Forward = lb.NAT
	p := &Plane{config: Config{Log: slog.New(slog.DiscardHandler)}}
	way, release, err := p.Open(svc, svc.Backends[1], 8080)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if want := (health.Path{Target: netip.MustParseAddrPort("10.0.2.2:8080")}); way != want {
		t.Errorf("path %+v, want %+v", way, want)
	}
}
