// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

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
		if err := errors.Join(unix.SchedSetaffinity(0, &one), ClaimProcessor(0)); err != nil {
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

func TestAwait(t *testing.T) {
	failed := errors.New("not yet")
	for name, c := range map[string]struct {
		limit time.Duration
		last  error // of the third call
		want  error
		calls int
	}{
		"third call": {time.Minute, nil, nil, 3},
		"permanent":  {time.Minute, netlab.Permanent{Err: failed}, failed, 3},
		"time over":  {0, nil, failed, 1},
	} {
		calls := 0
		err := Await(t.Context(), c.limit, time.Microsecond, func(context.Context) error {
			if calls++; calls < 3 {
				return failed
			}
			return c.last
		})
		if !errors.Is(err, c.want) || calls != c.calls {
			t.Errorf("%s: error %v after %d calls, want %v after %d", name, err, calls, c.want, c.calls)
		}
	}
}
