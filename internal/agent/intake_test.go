// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/store"
)

// instantProber answers every probe at once.
type instantProber struct{}

func (instantProber) Probe(context.Context, health.Path) error { return nil }

// checkedServices have a health check and a backend each, which gets no flows before
// its first probe.
func checkedServices(first, count int) []lb.Service {
	check := &lb.HealthCheck{
		Type: lb.HealthTCP, Interval: time.Hour, Timeout: time.Second, Rise: 1, Fall: 1, Initially: lb.InitiallyUnhealthy,
	}
	services := make([]lb.Service, count)
	for i := range services {
		n := first + i
		services[i] = lb.Service{
			Name:    fmt.Sprintf("s%d", n),
			VIP:     lb.VIP{Address: netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), Port: 80, Protocol: lb.TCP},
			Forward: lb.NAT, MinHealthy: 1, Health: check,
			Backends: []lb.Backend{{Address: netip.AddrFrom4([4]byte{10, 2, byte(n >> 8), byte(n)}), Port: 80, Weight: 1}},
		}
	}
	return services
}

// Health reports a verdict once. One that comes before the store has the backend
// must not be lost: the backend would stay unused until its health changes.
func TestVerdictsOfProbesThatAnswerAtOnce(t *testing.T) {
	const probedAtOnce = 256 // health's burst
	const rounds, count = 30, 2000
	for name, update := range map[string]func(round int) source.Update{
		"whole": func(round int) source.Update {
			return source.Update{Whole: true, Changed: checkedServices(round*count, count)}
		},
		"change": func(round int) source.Update {
			u := source.Update{Changed: checkedServices(round*count, count)}
			if round > 0 {
				for _, svc := range checkedServices((round-1)*count, count) {
					u.Removed = append(u.Removed, svc.VIP)
				}
			}
			return u
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := &intake{store: store.New(), log: slog.New(slog.DiscardHandler)}
			in.monitor = health.New(health.Config{
				Paths: health.DirectPaths{}, Prober: func(*lb.HealthCheck) health.Prober { return instantProber{} },
				Probes: 2 * probedAtOnce, Report: in.judge, Log: in.log,
			})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				in.monitor.Run(ctx)
			}()
			defer func() {
				stop()
				<-ended
			}()
			known := func() (n int) {
				for _, v := range in.monitor.States() {
					if v.Known {
						n++
					}
				}
				return n
			}
			judged := func() (n int) {
				for _, e := range in.store.Snapshot().Services {
					if e.Health[e.Configured.Backends[0].ID()].Known {
						n++
					}
				}
				return n
			}
			for round := range rounds {
				if err := in.take(ctx, update(round)); err != nil {
					t.Fatal(err)
				}
				for deadline := time.Now().Add(30 * time.Second); known() < probedAtOnce || judged() < known(); time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("round %d: health knows %d backends, the store %d of them", round, known(), judged())
					}
				}
			}
		})
	}
}
