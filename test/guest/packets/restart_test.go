//go:build guest

// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"log/slog"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// A plane that finds services of an earlier one loads the program with every feature:
// it comes closest to the limits of old kernels' verifiers, such as 512 bytes of stack
// for all functions of a call chain together.
func TestRestart(t *testing.T) {
	lab := bringUp(t, host("lb1", netlab.Balancer, 1, "10.0.0.1/24"), host("web1", netlab.Server, 2, "10.0.0.2/24"))
	cfg := xdp.Config{
		PinDir: "/sys/fs/bpf/restart", Interfaces: []string{port}, Mode: program.Native,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	vip := lb.VIP{Address: prefixes("10.1.0.1/32")[0].Addr(), Protocol: lb.TCP, Port: 80}
	t.Cleanup(func() {
		if err := xdp.Remove(cfg.PinDir); err != nil {
			t.Error(err)
		}
	})
	within(t, lab, "lb1", func() error {
		first, err := xdp.Open(cfg)
		if err != nil {
			return err
		}
		defer first.Close()
		_, err = first.Update(t.Context(), service(vip, lb.L2DSR, "10.0.0.2"))
		return err
	})
	within(t, lab, "lb1", func() error {
		second, err := xdp.Open(cfg)
		if err != nil {
			return err
		}
		defer second.Close()
		return second.Attach(t.Context())
	})
}
