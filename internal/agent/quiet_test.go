// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

func TestAwaitQuiet(t *testing.T) {
	for name, tt := range map[string]struct {
		packets func(since time.Duration) uint64 // nil: no services
		least   time.Duration
		most    time.Duration
		err     error
	}{
		"no services":  {nil, 0, 0, nil},
		"silent":       {func(time.Duration) uint64 { return 7 }, time.Second, 1500 * time.Millisecond, nil},
		"busy":         {func(d time.Duration) uint64 { return uint64(d) }, 10 * time.Second, 10 * time.Second, context.DeadlineExceeded},
		"one a minute": {func(d time.Duration) uint64 { return uint64(d / time.Minute) }, time.Second, 1500 * time.Millisecond, nil},
		"ends": {func(d time.Duration) uint64 { return uint64(min(d, 3*time.Second)) },
			4 * time.Second, 4500 * time.Millisecond, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				err := awaitQuiet(ctx, func(context.Context) (dataplane.Stats, error) {
					stats := dataplane.Stats{Services: map[lb.VIP]dataplane.ServiceStats{}}
					if tt.packets != nil {
						stats.Services[lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP}] = dataplane.ServiceStats{Traffic: dataplane.Traffic{Packets: tt.packets(time.Since(began))}}
					}
					return stats, nil
				})
				if took := time.Since(began); !errors.Is(err, tt.err) || took < tt.least || took > tt.most {
					t.Errorf("waited %s (%v), want %s to %s (%v)", took, err, tt.least, tt.most, tt.err)
				}
			})
		})
	}
}
