// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/await"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fake"
)

// instantProber answers every probe at once.
type instantProber struct{}

func (instantProber) Probe(context.Context, health.Path) error { return nil }

// checkedServices have a health check and a backend each, which gets no flows before
// its first probe.
func checkedServices(first, count int) []lb.Service {
	services := make([]lb.Service, count)
	for i := range services {
		n := first + i
		svc := fake.Checked(fmt.Sprintf("s%d", n), fake.Numbered(n), netip.AddrFrom4([4]byte{10, 2, byte(n >> 8), byte(n)}).String())
		svc.Forward, svc.Health.Interval, svc.Health.Initially = lb.NAT, time.Hour, lb.InitiallyUnhealthy
		services[i] = svc
	}
	return services
}

// probedAtOnce is health's burst.
const probedAtOnce = 256

// startIntake runs an intake whose backends answer at once, until the test ends.
func startIntake(t *testing.T) *intake {
	in := &intake{store: store.New(), log: slog.New(slog.DiscardHandler)}
	in.monitor = health.New(health.Config{
		Paths: health.DirectPaths{}, Prober: func(*lb.HealthCheck) health.Prober { return instantProber{} },
		Probes: 2 * probedAtOnce, Report: in.applyVerdicts, Log: in.log,
	})
	fake.Run(t, fake.Part(in.monitor.Run))
	return in
}

// Health reports a verdict once. One that comes before the store has the backend
// must not be lost: the backend would stay unused until its health changes.
func TestImmediateVerdicts(t *testing.T) {
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
			in := startIntake(t)
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
				if err := in.apply(t.Context(), update(round)); err != nil {
					t.Fatal(err)
				}
				await.True(t, "each known verdict is in the store", func() bool {
					return known() >= probedAtOnce && judged() >= known()
				})
			}
		})
	}
}

// countingPlane has room for any number of services. It notes whether the last update of
// each had a backend in use.
type countingPlane struct {
	*dataplanetest.Fake
	inUse map[lb.VIP]bool // only the reconciler's until that has ended
}

func (p countingPlane) Update(_ context.Context, svc *lb.Service) (dataplane.Programmed, error) {
	p.inUse[svc.VIP] = svc.Backends[0].Weight > 0
	return dataplane.Programmed{}, nil
}

// keepBusy has goroutines use processor time until the test ends.
func keepBusy(t *testing.T, loops int) {
	var ended atomic.Bool
	t.Cleanup(func() { ended.Store(true) })
	for range loops {
		go func() {
			for !ended.Load() { //nolint:revive // it is to be busy
			}
		}()
	}
}

// Services that come one by one, as objects do in a cluster, are probed and programmed, all
// of them: no verdict is lost between health, store and data plane.
func TestServicesOneByOne(t *testing.T) {
	count := 2000
	if os.Getenv("FAIRLEAD_FUZZ") != "" { // make test-all
		count = 5000
		keepBusy(t, 2)
	}
	in, plane := startIntake(t), countingPlane{dataplanetest.NewFake(), map[lb.VIP]bool{}}
	defer plane.Close()
	stop := fake.Run(t, fake.Part(reconcile.New(plane, in.store, in.log).Run))
	services := checkedServices(0, count)
	if err := in.apply(t.Context(), source.Update{Whole: true}); err != nil {
		t.Fatal(err)
	}
	for i := range services {
		if err := in.apply(t.Context(), source.Update{Changed: services[i : i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	lacking := func() (n int) {
		for _, e := range in.store.Snapshot().Services {
			if e.Service.Backends[0].Weight == 0 || e.Status == nil || e.Status.Programmed != e.Revision {
				n++
			}
		}
		return n
	}
	await.Equal(t, "services without a backend in use", 0, lacking)
	stop()
	for vip, inUse := range plane.inUse {
		if !inUse {
			t.Errorf("%s has no backend in use", vip)
		}
	}
	if len(plane.inUse) != count || len(in.store.Snapshot().Services) != count {
		t.Errorf("%d services are programmed, %d desired, want %d", len(plane.inUse), len(in.store.Snapshot().Services), count)
	}
}

// An update that the store rejects changes nothing: the health targets are as before.
func TestRefusedUpdate(t *testing.T) {
	in := startIntake(t)
	services := checkedServices(0, 3)
	if err := in.apply(t.Context(), source.Update{Whole: true, Changed: services[:2]}); err != nil {
		t.Fatal(err)
	}
	want := states(in)
	services[2].Name = services[0].Name
	for name, u := range map[string]source.Update{
		"whole":  {Whole: true, Changed: []lb.Service{services[0], services[2]}},
		"change": {Changed: services[2:], Removed: []lb.VIP{services[1].VIP}},
	} {
		if err := in.apply(t.Context(), u); err == nil {
			t.Errorf("%s: two services with the same name are accepted", name)
		}
		if got := states(in); !slices.Equal(got, want) {
			t.Errorf("%s: %v are probed, want %v", name, got, want)
		}
	}
}

// states are the VIPs of the backends that are probed.
func states(in *intake) (vips []string) {
	for _, v := range in.monitor.States() {
		vips = append(vips, v.VIP.String())
	}
	slices.Sort(vips)
	return vips
}
