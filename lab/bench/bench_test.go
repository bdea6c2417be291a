// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
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

// The kernel's own threads would starve on the only processor.
func TestOnlyProcessorKeepsOrdinaryPriority(t *testing.T) {
	err := netlab.OnThread(func() error {
		var allowed, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &allowed); err != nil {
			return err
		}
		for cpu := 0; one.Count() == 0; cpu++ {
			if allowed.IsSet(cpu) {
				one.Set(cpu)
			}
		}
		if err := errors.Join(unix.SchedSetaffinity(0, &one), ClaimProcessor()); err != nil {
			return err
		}
		attr, err := unix.SchedGetAttr(0, 0)
		if err == nil && attr.Policy != unix.SCHED_NORMAL {
			err = fmt.Errorf("scheduling policy %d", attr.Policy)
		}
		return err
	})
	if err != nil {
		t.Error(err)
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
