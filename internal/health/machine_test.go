// SPDX-License-Identifier: Apache-2.0

package health

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// inRow reports whether the last n results all were the same.
func inRow(results []bool, n int, want bool) bool {
	return len(results) >= n && !slices.Contains(results[len(results)-n:], !want)
}

// Whatever happens, a verdict comes or changes with the fall-th failure or the rise-th
// success in a row, not before, and the first success decides alone. Who isn't healthy
// is silent from the fall-th failure in a row in which nothing came back.
func TestRiseAndFall(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		check := &lb.HealthCheck{Rise: 1 + random.IntN(4), Fall: 1 + random.IntN(4)}
		initially := random.IntN(2) == 0
		m := newMachine(check, initially)
		if m.Known || m.Healthy != initially || m.Share != lb.WholeShare {
			t.Fatalf("seed %d: begins as %+v", seed, m.State)
		}
		var results, silence []bool
		for i := range 200 {
			now := epoch.Add(time.Duration(i) * time.Second)
			ok, before := random.Float64() < 0.5, m.State
			r := result{took: time.Duration(i)}
			if !ok {
				r.reason, r.silent = "no success", random.IntN(4) > 0
			}
			results, silence = append(results, ok), append(silence, r.silent)
			want := before.Healthy
			switch {
			case !before.Known && ok:
				want = true
			case before.Healthy && inRow(results, check.Fall, false), !before.Healthy && inRow(results, check.Rise, true):
				want = !before.Healthy
			}
			changed := m.observe(r, now)
			known, silent := before.Known || ok || inRow(results, check.Fall, false), !want && inRow(silence, check.Fall, true)
			turned := known != before.Known || want != before.Healthy
			if m.Healthy != want || m.Known != known || m.Silent != silent || changed != (turned || silent != before.Silent) || m.Reason != r.reason || m.Took != r.took {
				t.Fatalf("seed %d, result %d: %+v, changed %t, want healthy %t, silent %t after %v", seed, i, m.State, changed, want, silent, results)
			}
			if turned && !m.Since.Equal(now) || !turned && m.Since != before.Since {
				t.Fatalf("seed %d, result %d: since %s", seed, i, m.Since)
			}
		}
	}
}

// In slow start the share grows step by step to the whole; it never shrinks,
// and each step is made when it is due.
func TestSlowStart(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		slowStart := 1 + time.Duration(random.Int64N(int64(time.Minute)))
		m := newMachine(&lb.HealthCheck{Rise: 1, Fall: 1, SlowStart: slowStart}, false)
		m.observe(result{}, epoch)
		if m.Share != 1 {
			t.Fatalf("begins with %d sixteenths", m.Share)
		}
		for m.Share < lb.WholeShare {
			due, before := m.nextStep(), m.Share
			if m.ramp(due.Add(-1)) {
				t.Fatalf("slow start of %s: a step to %d before it was due", slowStart, m.Share)
			}
			if !m.ramp(due) || m.Share <= before || m.Share > lb.WholeShare {
				t.Fatalf("slow start of %s: %d after %d at %s", slowStart, m.Share, before, due.Sub(epoch))
			}
		}
		if m.ramp(epoch.Add(slowStart)) {
			t.Fatalf("more than the whole")
		}
	}
}

func TestSlowStartAfterRecovery(t *testing.T) {
	check := &lb.HealthCheck{Rise: 1, Fall: 1, SlowStart: time.Minute}
	m := newMachine(check, true)
	if m.observe(result{}, epoch); m.Share != lb.WholeShare {
		t.Errorf("a backend that counted as healthy has %d sixteenths", m.Share)
	}
	m.observe(result{reason: "no"}, epoch)
	if m.Share != lb.WholeShare {
		t.Errorf("a dead backend has %d sixteenths, want all: they count while health is ignored", m.Share)
	}
	if m.observe(result{}, epoch); m.Share != 1 {
		t.Errorf("a backend that returns has %d sixteenths", m.Share)
	}
	if m.ramp(epoch.Add(30*time.Second)) && m.Share != 8 {
		t.Errorf("at half time %d sixteenths", m.Share)
	}
	m.observe(result{reason: "no"}, epoch.Add(31*time.Second))
	if m.ramp(epoch.Add(time.Hour)) || m.Share != lb.WholeShare {
		t.Errorf("a dead backend continues its slow start: %d sixteenths", m.Share)
	}
}

func TestPanic(t *testing.T) {
	for _, test := range []struct {
		healthy, total, percent int
		want                    bool
	}{
		{0, 0, 50, false}, {0, 10, 0, false}, {0, 10, 1, true}, {4, 10, 50, true}, {5, 10, 50, false}, {10, 10, 100, false}, {9, 10, 100, true}, {1, 3, 34, true}, {1, 3, 33, false},
	} {
		if got := Panic(test.healthy, test.total, test.percent); got != test.want {
			t.Errorf("%d of %d healthy at %d percent: %t", test.healthy, test.total, test.percent, got)
		}
	}
}
