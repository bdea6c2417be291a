// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// A backend that dies is reported within fall × interval, one that returns
// within rise × interval, both plus a probe's time and the wait for others.
func TestVerdictTiming(t *testing.T) {
	withServers(t, func(_ *testing.T, m *testMonitor) {
		m.takes = 5 * time.Millisecond
		m.watch(service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2"))
		m.after(2*time.Millisecond, "10.1.1.1 10.0.0.1:80 perhaps healthy", "10.1.1.1 10.0.0.2:80 perhaps healthy")
		m.after(5*time.Millisecond, "10.1.1.1 10.0.0.1:80 healthy", "10.1.1.1 10.0.0.2:80 healthy")
		for range 50 {
			m.breaks("10.0.0.2", errRefused)
			m.after(1800 * time.Millisecond)
			m.after(1200*time.Millisecond+7*time.Millisecond, "10.1.1.1 10.0.0.2:80 unhealthy")
			m.breaks("10.0.0.2", nil)
			m.after(900 * time.Millisecond)
			m.after(1100*time.Millisecond+7*time.Millisecond, "10.1.1.1 10.0.0.2:80 healthy")
		}
	})
}

// Probes come after the interval or up to a tenth earlier, never later.
func TestProbeSpacing(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		m.watch(service("10.1.1.1", tcpCheck(), "10.0.0.1"))
		time.Sleep(100 * time.Second)
		synctest.Wait()
		probes := m.probed()
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
	withServers(t, func(t *testing.T, m *testMonitor) {
		m.takes = time.Minute
		check := tcpCheck()
		check.Timeout = check.Interval
		m.watch(service("10.1.1.1", check, "10.0.0.1"))
		m.after(999*time.Millisecond, "10.1.1.1 10.0.0.1:80 perhaps healthy")
		m.after(3 * time.Millisecond) // one slow probe takes no backend out
		m.after(2200*time.Millisecond, "10.1.1.1 10.0.0.1:80 silent")
		if states := m.States(); len(states) != 1 || states[0].Reason != "timed out after 1s" || states[0].Took != time.Second {
			t.Errorf("%+v", states)
		}
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if n := len(m.probed()); n < 10 || n > 11 || m.peak != 1 {
			t.Errorf("%d probes, %d at the same time", n, m.peak)
		}
	})
}

func TestSlowStartReports(t *testing.T) {
	withServers(t, func(_ *testing.T, m *testMonitor) {
		check := tcpCheck()
		check.SlowStart = 16 * time.Minute
		m.breaks("10.0.0.1", errRefused)
		m.watch(service("10.1.1.1", check, "10.0.0.1"))
		m.after(time.Second/2, "10.1.1.1 10.0.0.1:80 perhaps healthy", "10.1.1.1 10.0.0.1:80 unhealthy")
		m.breaks("10.0.0.1", nil)
		m.after(3*time.Second, "10.1.1.1 10.0.0.1:80 healthy 1/16")
		for n := 2; n < 16; n++ {
			time.Sleep(time.Minute)
			if n > 2 { // the first sixteenth is there at once
				m.expect(fmt.Sprintf("10.1.1.1 10.0.0.1:80 healthy %d/16", n-1))
			} else {
				m.expect()
			}
		}
		m.after(2*time.Minute, "10.1.1.1 10.0.0.1:80 healthy", "10.1.1.1 10.0.0.1:80 healthy 15/16")
	})
}

// A hint has a dead backend found long before its next probe; of a living one
// nothing follows but one more probe in each interval.
func TestHint(t *testing.T) {
	withServers(t, func(_ *testing.T, m *testMonitor) {
		check := tcpCheck()
		check.Interval, check.Passive = time.Minute, true
		svc := service("10.1.1.1", check, "10.0.0.1")
		m.watch(svc)
		hint := func() { m.Hint(svc.VIP, svc.Backends[0].ID()) }
		time.Sleep(10 * time.Second)
		m.reported()
		m.probed()
		for range 1000 {
			hint()
			time.Sleep(10 * time.Millisecond)
		}
		m.expect()
		m.wantProbes(1, 1)
		time.Sleep(3 * time.Minute)
		m.breaks("10.0.0.1", errRefused)
		hint()
		m.after(2*check.Interval/20+20*time.Millisecond, "10.1.1.1 10.0.0.1:80 unhealthy")
		m.Hint(svc.VIP, netip.MustParseAddrPort("10.0.0.9:80")) // unknown
	})
}

func TestHintWithoutPassiveCheck(t *testing.T) {
	withServers(t, func(_ *testing.T, m *testMonitor) {
		svc := service("10.1.1.1", tcpCheck(), "10.0.0.1")
		m.watch(svc)
		time.Sleep(time.Second / 2)
		m.probed()
		m.Hint(svc.VIP, svc.Backends[0].ID())
		time.Sleep(10 * time.Millisecond)
		m.wantProbes(0, 0)
	})
}

// A way that can't be opened is a failure, and is tried again each time.
func TestUnreachable(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		m.unreachable = errors.New("no route to 10.0.0.1")
		m.watch(service("10.1.1.1", tcpCheck(), "10.0.0.1"))
		m.after(time.Second/2, "10.1.1.1 10.0.0.1:80 perhaps healthy", "10.1.1.1 10.0.0.1:80 silent")
		if got := m.States()[0].Reason; got != "can't be reached: no route to 10.0.0.1" {
			t.Error(got)
		}
		m.mu.Lock()
		m.unreachable = nil
		m.mu.Unlock()
		m.after(2*time.Second, "10.1.1.1 10.0.0.1:80 healthy", "10.1.1.1 10.0.0.1:80 unhealthy") // one success isn't enough
	})
}

// As long as it isn't known how to reach a backend, nothing is known of it; then it
// is probed soon.
func TestPendingPath(t *testing.T) {
	withServers(t, func(_ *testing.T, m *testMonitor) {
		m.unreachable = fmt.Errorf("not programmed: %w", ErrPending)
		m.watch(service("10.1.1.1", tcpCheck(), "10.0.0.1"))
		m.after(10*time.Second, "10.1.1.1 10.0.0.1:80 perhaps healthy")
		m.wantProbes(0, 0)
		m.mu.Lock()
		m.unreachable = nil
		m.mu.Unlock()
		m.after(2*pendingPause, "10.1.1.1 10.0.0.1:80 healthy")
	})
}

// When this node runs out of files no backend is taken out.
func TestLocalErrorIgnored(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		m.watch(service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2"))
		time.Sleep(time.Second / 2)
		m.reported()
		m.breaks("10.0.0.1", fmt.Errorf("%w: too many open files", ErrLocal))
		m.after(time.Minute)
		if n := len(m.probed()); n < 120 {
			t.Errorf("%d probes of two backends in a minute", n)
		}
	})
}

// A reporter that is late gets verdicts as they are then, not as they were.
func TestLateReport(t *testing.T) {
	withServers(t, func(_ *testing.T, m *testMonitor) {
		late := make(chan struct{})
		m.Monitor.config.Report = func(take func() []Verdict) {
			<-late
			m.take(take)
		}
		m.watch(service("10.1.1.1", tcpCheck(), "10.0.0.1"))
		time.Sleep(time.Second / 2)
		m.breaks("10.0.0.1", errRefused)
		time.Sleep(4 * time.Second)
		close(late)
		m.expect("10.1.1.1 10.0.0.1:80 unhealthy")
	})
}
