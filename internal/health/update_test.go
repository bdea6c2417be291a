// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Updates come to the same members and targets as one Set.
func TestUpdateEqualsSet(t *testing.T) {
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	newMonitor := func() *Monitor {
		return New(Config{Paths: DirectPaths{}, Prober: func(*lb.HealthCheck) Prober { return nil }, Probes: 1, Report: func(take func() []Verdict) { take() }, Log: slog.New(slog.DiscardHandler)})
	}
	updated, whole := newMonitor(), newMonitor()
	want := map[lb.VIP]lb.Service{}
	for range 200 {
		var changed []lb.Service
		var removed []lb.VIP
		for n := range byte(4) {
			svc := service(fmt.Sprint("10.1.1.", n), nil)
			if random.IntN(2) == 0 {
				svc.Health = &lb.HealthCheck{Type: lb.HealthTCP, Interval: time.Hour, Timeout: time.Second, Rise: 1, Fall: 1}
			}
			for b := range byte(3) {
				if random.IntN(2) == 0 {
					svc.Backends = append(svc.Backends, lb.Backend{Address: netip.AddrFrom4([4]byte{10, 0, 0, b}), Port: 80, Weight: 1})
				}
			}
			switch random.IntN(3) {
			case 0:
				changed, want[svc.VIP] = append(changed, svc), svc
			case 1:
				removed = append(removed, svc.VIP)
				delete(want, svc.VIP)
			}
		}
		updated.Update(changed, removed)
		whole.Set(slices.Collect(maps.Values(want)))
		keys := func(m *Monitor) map[subject]bool {
			all := map[subject]bool{}
			for s := range m.members {
				all[s] = true
			}
			return all
		}
		if !maps.Equal(keys(updated), keys(whole)) || len(updated.targets) != len(whole.targets) {
			t.Fatalf("updated %v, %d targets; set %v, %d targets", keys(updated), len(updated.targets), keys(whole), len(whole.targets))
		}
		if got := updated.StatesOf(slices.Collect(maps.Values(want))); len(got) != len(updated.States()) {
			t.Fatalf("%d states of all services, want %d", len(got), len(updated.States()))
		}
	}
}
