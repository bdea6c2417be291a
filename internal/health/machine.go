// SPDX-License-Identifier: Apache-2.0

package health

import (
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// machine derives the state of one backend of one service from the results of
// probes. It is pure: time is an argument.
type machine struct {
	State
	rise, fall int
	slowStart  time.Duration
	// streak counts the results in a row that contradict the verdict, quiet those in
	// which nothing came back.
	streak, quiet int
}

// result is how one probe went.
type result struct {
	// reason is why it failed; empty if it didn't. Silent says that nothing came back.
	reason string
	silent bool
	took   time.Duration
}

// newMachine knows only how a backend counts until its first probe is over.
func newMachine(check *lb.HealthCheck, healthy bool) machine {
	m := machine{State: State{Checked: true, Healthy: healthy, Share: lb.WholeShare}}
	m.configure(check)
	return m
}

// resume continues with an earlier process's state.
func (m *machine) resume(earlier State) {
	earlier.Checked, earlier.Share = true, lb.WholeShare
	earlier.Silent = earlier.Silent && !earlier.Healthy
	if m.State = earlier; m.Silent {
		m.quiet = m.fall
	}
}

// configure changes the evaluation of results from now on. The state stays.
func (m *machine) configure(check *lb.HealthCheck) {
	m.rise, m.fall, m.slowStart = check.Rise, check.Fall, check.SlowStart
}

// observe takes a result and reports whether it brought something to report.
func (m *machine) observe(r result, now time.Time) bool {
	m.Reason, m.Took = r.reason, r.took
	verdict, before := m.judge(r.reason == "", now), m.Silent
	if m.quiet++; !r.silent {
		m.quiet = 0
	}
	m.Silent = !m.Healthy && m.quiet >= m.fall
	return verdict || m.Silent != before
}

// judge takes a result and reports whether it brought a verdict: the first success of
// all does, other results only if there are enough of them in a row. So one slow probe
// takes no backend's flows away, nor those that another balancer gave a new one.
func (m *machine) judge(healthy bool, now time.Time) bool {
	if m.Known && healthy == m.Healthy {
		m.streak = 0
		return false
	}
	m.streak++
	need := m.fall
	switch {
	case healthy && !m.Known:
		need = 1
	case healthy:
		need = m.rise
	}
	if m.streak < need {
		return false
	}
	m.Known = true
	m.turn(healthy, now)
	return true
}

// turn begins slow start only where a backend gets flows again that it didn't
// have: one that counted as healthy all the time stays as it was.
func (m *machine) turn(healthy bool, now time.Time) {
	returns := healthy && !m.Healthy
	m.Healthy, m.Since, m.streak, m.Share = healthy, now, 0, lb.WholeShare
	if returns && m.slowStart > 0 {
		m.Share = 1
	}
}

// ramp raises the share of a backend in slow start to its value at that time, and
// reports whether it did.
func (m *machine) ramp(now time.Time) bool {
	if m.Share == lb.WholeShare {
		return false
	}
	share := lb.WholeShare
	if passed := now.Sub(m.Since); passed < m.slowStart {
		share = int(lb.WholeShare * passed / m.slowStart)
	}
	if share <= m.Share {
		return false
	}
	m.Share = share
	return true
}

// nextStep is when the share grows next; only if it is not the full one.
func (m *machine) nextStep() time.Time {
	step := m.slowStart * time.Duration(m.Share+1)
	return m.Since.Add((step + lb.WholeShare - 1) / lb.WholeShare)
}

// Panic reports whether so few backends are healthy that health is to be
// ignored: less than a percentage of them all. 0 percent never does.
func Panic(healthy, total, percent int) bool {
	return healthy*100 < percent*total
}
