// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"maps"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
)

// AwaitHealth waits until the first balancer reports these states for the backends of
// services.
func (l *Lab) AwaitHealth(t *testing.T, services []string, want ...observe.HealthState) {
	t.Helper()
	h := l.State().Host("lb1")
	for _, service := range services {
		got := make([]observe.Health, len(want))
		holds := await.Holds(func() bool {
			known := Backends(t, h, service)
			for i, b := range l.Service(service).Backends {
				got[i] = known[b.Address.String()].Health
			}
			return slices.EqualFunc(got, want, func(h observe.Health, s observe.HealthState) bool { return h.State == s })
		})
		if !holds {
			t.Fatalf("%s: the backends' health is %+v, want %v", service, got, want)
		}
	}
}

// Checked adds a health check to the services "web" and "web6" of a topology.
func Checked(topology netlab.Topology) netlab.Topology {
	for i := range topology.Services {
		if s := &topology.Services[i]; s.Protocol == lb.TCP {
			s.Health = &lb.HealthCheck{
				Type: lb.HealthHTTP, Path: "/", Interval: 200 * time.Millisecond, Timeout: 150 * time.Millisecond, Rise: 2, Fall: 2,
			}
		}
	}
	topology.SetServices(topology.Services)
	return topology
}

// Check is the health check of the tests' web services. PatientCheck is for tests that have no dead
// servers and break no connection: a server that doesn't run for seconds on a busy machine isn't
// dead.
var (
	Check = lb.HealthCheck{
		Type: lb.HealthHTTP, Path: "/", Interval: 500 * time.Millisecond, Timeout: 500 * time.Millisecond, Rise: 2, Fall: 3,
	}
	PatientCheck = lb.HealthCheck{
		Type: lb.HealthHTTP, Path: "/", Interval: 5 * time.Second, Timeout: 5 * time.Second, Rise: 1, Fall: 3,
	}
)

// AwaitInUse waits until each balancer uses that many backends of both web services, and
// returns how long it took.
func (l *Lab) AwaitInUse(t *testing.T, count int) time.Duration {
	t.Helper()
	began := time.Now()
	for _, h := range l.Hosts(netlab.Balancer) {
		for _, name := range []string{"web", "web6"} {
			Until(t, h.Name+" has the right backends of "+name, func() bool {
				s := Services(t, &h)[name]
				return s.BackendsInUse == count && !s.Panic && s.BackendsHealthy == count
			})
		}
	}
	return time.Since(began)
}

// KillServer kills a server's nginx, workers included, and returns when.
func (l *Lab) KillServer(t *testing.T, name string) time.Time {
	t.Helper()
	killed := time.Now()
	if err := l.Kill(t.Context(), name, "nginx"); err != nil {
		t.Fatal(err)
	}
	return killed
}

// StartServer starts the web server of a host.
func (l *Lab) StartServer(t *testing.T, name string) {
	t.Helper()
	if err := l.Restart(t.Context(), name, "nginx"); err != nil {
		t.Fatal(err)
	}
}

// ServerNames returns the names of all servers.
func (l *Lab) ServerNames() []string {
	byName := map[string]bool{}
	for _, h := range l.Hosts(netlab.Server) {
		byName[h.Name] = true
	}
	return slices.Sorted(maps.Keys(byName))
}
