// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// ways notes through which services paths are opened.
type ways struct {
	*world
	through []lb.VIP
}

func (w *ways) Open(svc *lb.Service, b lb.Backend, port uint16) (Path, func(), error) {
	path, release, err := w.world.Open(svc, b, port)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(svc.Backends, func(own lb.Backend) bool { return own.ID() == b.ID() }) {
		w.t.Errorf("a path through %s to %s, which is none of its backends", svc.VIP, b.ID())
	}
	if err == nil {
		w.through = append(w.through, svc.VIP)
	}
	return path, release, err
}

func newWays(t *testing.T) *ways {
	w := &ways{world: newWorld(t)}
	w.Monitor.config.Paths = w
	w.run()
	return w
}

// openedThrough returns through which services paths were opened since it was last
// asked.
func (w *ways) openedThrough() []lb.VIP {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	opened := w.through
	w.through = nil
	return opened
}

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
func TestPathsAreOpenedAnewAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWays(t)
		svc := service("10.1.1.1", tcpCheck(), "10.0.0.1")
		w.Set([]lb.Service{svc})
		time.Sleep(5 * svc.Health.Interval)
		if opened := w.openedThrough(); len(opened) != 1 {
			t.Errorf("%d paths were opened for probes that succeed, want one", len(opened))
		}
		w.probed()
		w.breaks("10.0.0.1", errors.New("broken"))
		time.Sleep(3 * svc.Health.Interval)
		failed := len(w.probed())
		if opened := w.openedThrough(); len(opened) < failed-1 || len(opened) > failed {
			t.Errorf("%d paths were opened after %d failures", len(opened), failed)
		}
	})
}

// Services that share a target share its path, until the one through which it
// was opened is gone.
func TestPathsLeadThroughAServiceThatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWays(t)
		one, two := dsr(80), dsr(443)
		w.Set([]lb.Service{one, two})
		time.Sleep(one.Health.Interval)
		opened := w.openedThrough()
		if targets, _ := w.size(); len(opened) != 1 || targets != 1 {
			t.Fatalf("%d targets, paths through %v, want one", targets, opened)
		}
		first, other := one, two
		if opened[0] == two.VIP {
			first, other = two, one
		}
		w.Set([]lb.Service{other})
		time.Sleep(2 * one.Health.Interval)
		if got := w.openedThrough(); !slices.Equal(got, []lb.VIP{other.VIP}) {
			t.Errorf("without %s paths are opened through %v, want %s", first.VIP, got, other.VIP)
		}
	})
}
