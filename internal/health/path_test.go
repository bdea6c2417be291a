// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// dsr is a service whose backends are probed through itself.
func dsr(port uint16) lb.Service {
	svc := service("10.1.1.1", tcpCheck(), "10.0.0.1")
	svc.Forward, svc.Port = lb.L2DSR, port
	svc.Health.Port = 80
	svc.Backends[0].Port = port
	return svc
}

// A path is kept as long as probes on it succeed, and opened again after one that
// fails.
func TestPathReopenedAfterFailure(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		svc := service("10.1.1.1", tcpCheck(), "10.0.0.1")
		m.watch(svc)
		time.Sleep(5 * svc.Health.Interval)
		if opened := m.openedThrough(); len(opened) != 1 {
			t.Errorf("%d paths were opened for probes that succeed, want one", len(opened))
		}
		m.probed()
		m.breaks("10.0.0.1", errors.New("broken"))
		time.Sleep(3 * svc.Health.Interval)
		failed := len(m.probed())
		if opened := m.openedThrough(); len(opened) < failed-1 || len(opened) > failed {
			t.Errorf("%d paths were opened after %d failures", len(opened), failed)
		}
	})
}

// Services that share a target share its path, until the one through which it
// was opened is gone.
func TestSharedPathOutlivesService(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		one, two := dsr(80), dsr(443)
		m.watch(one, two)
		time.Sleep(one.Health.Interval)
		opened := m.openedThrough()
		if targets, _ := m.size(); len(opened) != 1 || targets != 1 {
			t.Fatalf("%d targets, paths through %v, want one", targets, opened)
		}
		first, other := one, two
		if opened[0] == two.VIP {
			first, other = two, one
		}
		m.Set([]lb.Service{other})
		time.Sleep(2 * one.Health.Interval)
		if got := m.openedThrough(); !slices.Equal(got, []lb.VIP{other.VIP}) {
			t.Errorf("without %s paths are opened through %v, want %s", first.VIP, got, other.VIP)
		}
	})
}
