// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// A backend that dies is reported within fall × interval, one that returns
// within rise × interval, both plus what a probe takes and the wait for others.
func TestVerdictsComeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = 5 * time.Millisecond
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2")})
		w.run()
		time.Sleep(2 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 perhaps healthy", "10.1.1.1 10.0.0.2:80 perhaps healthy")
		time.Sleep(5 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 healthy", "10.1.1.1 10.0.0.2:80 healthy")
		for range 50 {
			w.breaks("10.0.0.2", errRefused)
			time.Sleep(1800 * time.Millisecond)
			w.expect()
			time.Sleep(1200*time.Millisecond + 7*time.Millisecond)
			w.expect("10.1.1.1 10.0.0.2:80 unhealthy")
			w.breaks("10.0.0.2", nil)
			time.Sleep(900 * time.Millisecond)
			w.expect()
			time.Sleep(1100*time.Millisecond + 7*time.Millisecond)
			w.expect("10.1.1.1 10.0.0.2:80 healthy")
		}
	})
}

// Probes come after the interval or up to a tenth earlier, never later.
func TestSpacingOnlyShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1")})
		w.run()
		time.Sleep(100 * time.Second)
		synctest.Wait()
		probes := w.probed()
		if len(probes) < 100 || len(probes) > 112 {
			t.Errorf("%d probes in 100 s", len(probes))
		}
		for i := 1; i < len(probes); i++ {
			if gap := probes[i].at.Sub(probes[i-1].at); gap > time.Second || gap < 900*time.Millisecond {
				t.Errorf("%s between two probes", gap)
			}
		}
	})
}

// Slow answers take no more than the time-out, and the next probe comes as if
// the answer had been fast.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = time.Minute
		check := tcpCheck()
		check.Timeout = check.Interval
		w.Set([]lb.Service{service("10.1.1.1", check, "10.0.0.1")})
		w.run()
		time.Sleep(999 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 perhaps healthy")
		time.Sleep(3 * time.Millisecond)
		w.expect() // one slow probe takes no backend out
		time.Sleep(2200 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 silent")
		if states := w.States(); len(states) != 1 || states[0].Reason != "timed out after 1s" || states[0].Took != time.Second {
			t.Errorf("%+v", states)
		}
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if n := len(w.probed()); n < 10 || n > 11 || w.peak != 1 {
			t.Errorf("%d probes, %d at the same time", n, w.peak)
		}
	})
}

func TestSlowStartIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		check := tcpCheck()
		check.SlowStart = 16 * time.Minute
		w.breaks("10.0.0.1", errRefused)
		w.Set([]lb.Service{service("10.1.1.1", check, "10.0.0.1")})
		w.run()
		time.Sleep(time.Second / 2)
		w.expect("10.1.1.1 10.0.0.1:80 perhaps healthy", "10.1.1.1 10.0.0.1:80 unhealthy")
		w.breaks("10.0.0.1", nil)
		time.Sleep(3 * time.Second)
		w.expect("10.1.1.1 10.0.0.1:80 healthy 1/16")
		for n := 2; n < 16; n++ {
			time.Sleep(time.Minute)
			if n > 2 { // the first sixteenth is there at once
				w.expect(fmt.Sprintf("10.1.1.1 10.0.0.1:80 healthy %d/16", n-1))
			} else {
				w.expect()
			}
		}
		time.Sleep(2 * time.Minute)
		w.expect("10.1.1.1 10.0.0.1:80 healthy", "10.1.1.1 10.0.0.1:80 healthy 15/16")
	})
}

// A hint has a dead backend found long before its next probe; of a living one
// nothing follows but one more probe in each interval.
func TestHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		check := tcpCheck()
		check.Interval, check.Passive = time.Minute, true
		svc := service("10.1.1.1", check, "10.0.0.1")
		w.Set([]lb.Service{svc})
		w.run()
		hint := func() { w.Hint(svc.VIP, svc.Backends[0].ID()) }
		time.Sleep(10 * time.Second)
		w.reported()
		w.probed()
		for range 1000 {
			hint()
			time.Sleep(10 * time.Millisecond)
		}
		w.expect()
		if n := len(w.probed()); n != 1 {
			t.Errorf("%d probes after hints at a living backend", n)
		}
		time.Sleep(3 * time.Minute)
		w.breaks("10.0.0.1", errRefused)
		hint()
		time.Sleep(2*check.Interval/20 + 20*time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 unhealthy")
		w.Hint(svc.VIP, netip.MustParseAddrPort("10.0.0.9:80")) // unknown
	})
}

func TestHintsNeedAPassiveCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		svc := service("10.1.1.1", tcpCheck(), "10.0.0.1")
		w.Set([]lb.Service{svc})
		w.run()
		time.Sleep(time.Second / 2)
		w.probed()
		w.Hint(svc.VIP, svc.Backends[0].ID())
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if n := len(w.probed()); n != 0 {
			t.Errorf("%d probes", n)
		}
	})
}

// A way that can't be opened is a failure, and is tried again each time.
func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.unreachable = errors.New("no route to 10.0.0.1")
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1")})
		w.run()
		time.Sleep(time.Second / 2)
		w.expect("10.1.1.1 10.0.0.1:80 perhaps healthy", "10.1.1.1 10.0.0.1:80 silent")
		if got := w.States()[0].Reason; got != "can't be reached: no route to 10.0.0.1" {
			t.Error(got)
		}
		w.mu.Lock()
		w.unreachable = nil
		w.mu.Unlock()
		time.Sleep(2 * time.Second)
		w.expect("10.1.1.1 10.0.0.1:80 healthy", "10.1.1.1 10.0.0.1:80 unhealthy") // one success isn't enough
	})
}

// As long as it isn't known how to reach a backend, nothing is known of it; then it
// is probed soon.
func TestPendingWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.unreachable = fmt.Errorf("not programmed: %w", ErrPending)
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1")})
		w.run()
		time.Sleep(10 * time.Second)
		w.expect("10.1.1.1 10.0.0.1:80 perhaps healthy")
		if n := len(w.probed()); n != 0 {
			t.Errorf("%d probes", n)
		}
		w.mu.Lock()
		w.unreachable = nil
		w.mu.Unlock()
		time.Sleep(2 * pendingPause)
		w.expect("10.1.1.1 10.0.0.1:80 healthy")
	})
}

// When this node runs out of files no backend is taken out.
func TestTroubleOfThisNodeChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2")})
		w.run()
		time.Sleep(time.Second / 2)
		w.reported()
		w.breaks("10.0.0.1", fmt.Errorf("%w: too many open files", ErrLocal))
		time.Sleep(time.Minute)
		w.expect()
		if n := len(w.probed()); n < 120 {
			t.Errorf("%d probes of two backends in a minute", n)
		}
	})
}

// A reporter that is late gets verdicts as they are then, not as they were.
func TestLateReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		late := make(chan struct{})
		w.Monitor.config.Report = func(take func() []Verdict) {
			<-late
			w.take(take)
		}
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1")})
		w.run()
		time.Sleep(time.Second / 2)
		w.breaks("10.0.0.1", errRefused)
		time.Sleep(4 * time.Second)
		close(late)
		w.expect("10.1.1.1 10.0.0.1:80 unhealthy")
	})
}
