//go:build guest

// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// patience is how long a test waits for what should take milliseconds, in a
// machine that is emulated by a busy one.
const patience = time.Minute

// balancer is a host's data plane, in native mode.
type balancer struct{ *xdp.Plane }

func openBalancer(t *testing.T, lab *netlab.Lab, host string) balancer {
	t.Helper()
	var b balancer
	pins := "/sys/fs/bpf/" + host
	within(t, lab, host, func() (err error) {
		b.Plane, err = xdp.Open(xdp.Config{
			PinDir:     pins,
			Interfaces: []string{port},
			Mode:       program.Native,
			Log:        slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		if err == nil {
			err = b.Attach(t.Context())
		}
		return err
	})
	t.Cleanup(func() {
		// The next test's balancer counts from zero.
		if err := errors.Join(b.Close(), xdp.Remove(pins)); err != nil {
			t.Error(err)
		}
	})
	return b
}

// balance programs a service and returns when all its backends are in use.
func (b balancer) balance(t *testing.T, svc *lb.Service) dataplane.Programmed {
	t.Helper()
	late := time.After(patience)
	for {
		programmed, err := b.Update(t.Context(), svc)
		if err != nil {
			t.Fatal(err)
		}
		if programmed.InUse() == len(svc.Backends) {
			return programmed
		}
		select {
		case <-b.Stale(): // a next hop is known by now
		case <-late:
			t.Fatalf("vip %s: %+v", svc.VIP, programmed.Backends)
		}
	}
}

// forwarded counts the packets of a service by backend.
func (b balancer) forwarded(t *testing.T, vip lb.VIP) map[lb.BackendID]dataplane.Traffic {
	t.Helper()
	stats, err := b.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	forwarded := map[lb.BackendID]dataplane.Traffic{}
	service := stats.Services[vip]
	for i, backend := range service.Backends {
		forwarded[backend.ID()] = service.Shares[i]
	}
	return forwarded
}

// checkExits fails the test if a packet of a VIP was dropped, or if an answer
// went through the balancer instead of past it.
func (b balancer) checkExits(t *testing.T) {
	t.Helper()
	stats, err := b.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for exit, packets := range stats.Exits {
		if packets > 0 && (strings.HasPrefix(exit, "drop_") || exit == "pass_not_vip") {
			t.Errorf("%d packets left the balancer through %s, want none", packets, exit)
		}
	}
}

// service is a service with backends at the VIP's port.
func service(vip lb.VIP, forward lb.Forward, backends ...string) *lb.Service {
	svc := &lb.Service{VIP: vip, Forward: forward, MinHealthy: 1, Unavailable: lb.Reject}
	for _, b := range backends {
		svc.Backends = append(svc.Backends, lb.Backend{Address: netip.MustParseAddr(b), Port: vip.Port, Weight: 1})
	}
	return svc
}
