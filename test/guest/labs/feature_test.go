//go:build guest

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"log/slog"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/frame"
	"fairlead.io/fairlead/internal/lb"
)

// A data plane that finds services of an earlier one loads the program with every feature, and
// traces packets by it: these come closest to the limits of old kernels' verifiers, such as 512
// bytes of stack for all functions of a call chain together.
func TestEveryFeature(t *testing.T) {
	cfg := xdp.Config{
		PinDir: "/sys/fs/bpf/features", Interfaces: []string{"lo"}, Mode: program.Generic,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	t.Cleanup(func() {
		if err := xdp.Remove(cfg.PinDir); err != nil {
			t.Error(err)
		}
	})
	open := func() *xdp.Plane {
		p, err := xdp.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	vip := netip.MustParseAddrPort("10.1.0.1:80")
	first := open()
	_, err := first.Update(t.Context(), &lb.Service{
		VIP: lb.VIP{Address: vip.Addr(), Protocol: lb.TCP, Port: vip.Port()}, Forward: lb.L2DSR, MinHealthy: 1,
		Backends: []lb.Backend{{Address: netip.MustParseAddr("10.0.0.2"), Port: vip.Port(), Weight: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open()
	if err := second.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	packet, err := frame.Description{
		From: netip.MustParseAddrPort("192.0.2.7:41000"), To: vip, Protocol: "tcp", Flags: frame.SYN,
	}.Build()
	if err != nil {
		t.Fatal(err)
	}
	said, err := second.Trace(t.Context(), dataplane.Packet{Frame: packet})
	if err != nil || !said.Found || said.VIP.Address != vip.Addr() {
		t.Errorf("a trace says %+v, %v", said, err)
	}
}
