// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.io/fairlead/internal/lb"
)

// due returns a target of a namespace whose probe is due.
func due(namespace string) *target { return &target{service: &lb.Service{Namespace: namespace}} }

// However many tenants have probes in flight that don't end, one more finds room, and they
// have as many as each other.
func TestShares(t *testing.T) {
	const room = 200
	for n := 1; n < room; n++ {
		s := newShares(room)
		for range room/n + 10 {
			for i := range n {
				s.wait(due(fmt.Sprint("hog", i)))
			}
		}
		for begun := s.next(); begun != nil; begun = s.next() {
			continue
		}
		for _, who := range s.tenants {
			if want := greed * (room - 1) / (greed*n + 1); who.inFlight < max(want-1, 1) || who.inFlight > want+1 {
				t.Errorf("of %d tenants %s has %d probes in flight, want %d", n, who.name, who.inFlight, want)
			}
		}
		s.wait(due("other"))
		if one := s.next(); one == nil || one.tenant.name != "other" {
			t.Errorf("with %d tenants another one has no room", n)
		}
	}
}

// Room that a probe leaves goes to a tenant that has less than the others; nothing is left of
// tenants without probes.
func TestSharesRoundRobin(t *testing.T) {
	s := newShares(4)
	for range 10 {
		s.wait(due("a"))
	}
	var flying []*target
	for one := s.next(); one != nil; one = s.next() {
		flying = append(flying, one)
	}
	s.wait(due("b"))
	s.wait(due("b"))
	order := ""
	for len(flying) > 0 {
		for one := s.next(); one != nil; one = s.next() {
			flying = append(flying, one)
			order += one.tenant.name
		}
		s.done(flying[0].tenant)
		flying = flying[1:]
	}
	if order != "babaaaaaa" {
		t.Errorf("probes begin in the order %s", order)
	}
	if len(s.tenants) != 0 || s.free != 4 || len(s.turns) != 0 {
		t.Errorf("left: %+v", s)
	}
}

// A probe that waits for room counts as late, others don't. Waiting ones end with the monitor.
func TestLateProbes(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		m.config.Probes = 2
		check := tcpCheck()
		check.Timeout = check.Interval
		m.takes = time.Hour // never answers
		m.watch()
		m.Set([]lb.Service{service("10.1.1.1", check, addresses(1)...)})
		time.Sleep(10 * time.Second)
		if n := testutil.ToFloat64(m.Metrics()[0]); n != 0 {
			t.Errorf("%g probes are late, without others", n)
		}
		m.Set([]lb.Service{service("10.1.1.1", check, addresses(10)...)})
		time.Sleep(10 * time.Second)
		if n := testutil.ToFloat64(m.Metrics()[0]); n < 5 {
			t.Errorf("%g probes are late", n)
		}
	})
}

// A target that is removed while it waits for room keeps no path open at the end.
func TestRemovedWhileWaiting(t *testing.T) {
	withServers(t, func(_ *testing.T, m *testMonitor) { // whose cleanup looks at paths
		m.config.Probes = 1
		m.watch()
		leaving, staying := service("10.1.1.1", tcpCheck(), "10.0.0.1"), service("10.1.1.2", tcpCheck(), "10.0.0.2")
		m.Set([]lb.Service{leaving})
		synctest.Wait()
		m.mu.Lock()
		m.takes = time.Hour
		m.mu.Unlock()
		staying.Health.Interval, staying.Health.Timeout = time.Minute, time.Minute
		m.Set([]lb.Service{leaving, staying})
		time.Sleep(2 * leaving.Health.Interval) // its next probe is due
		m.Set([]lb.Service{staying})
	})
}
