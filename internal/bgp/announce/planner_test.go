// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/fuzzrand"
)

// testPlanner decides about one service at times of its own.
type testPlanner struct {
	*scene
	planner
	now time.Time
}

func newPlanner(t *testing.T, delay time.Duration, services ...lb.Service) *testPlanner {
	return &testPlanner{scene: newScene(t, services...), planner: planner{delay: delay, prefixes: map[netip.Prefix]*record{}}, now: time.Unix(1e9, 0)}
}

// want checks the decision some time later: "announced", "leaving", "damped"
// or "withdrawn".
func (d *testPlanner) want(later time.Duration, want string) Decision {
	d.t.Helper()
	d.now = d.now.Add(later)
	plan := d.decide(d.now, &d.Input)
	decision, got := plan.Decisions[0], "withdrawn"
	switch {
	case decision.Route.GracefulShutdown:
		got = "leaving"
	case decision.Announced:
		got = "announced"
	case !decision.Damped.IsZero():
		got = "damped"
	}
	if got != want || decision.Announced != (len(plan.Routes()) == 1) {
		d.t.Errorf("%s: %s, want %s (%+v)", d.now.UTC().Format("15:04:05.000"), got, want, decision)
	}
	return decision
}

// health changes how many backends live, and the data plane follows.
func (d *testPlanner) health(living int) {
	d.evaluate(web, living)
	d.program()
}

// A planned leave is announced first, also with nothing to wait for.
func TestPlannedLeave(t *testing.T) {
	leaves := map[string]struct{ leave, back func(d *testPlanner) }{
		"node": {
			func(d *testPlanner) { d.drain(store.Target{}) },
			func(d *testPlanner) { d.Desired = d.store.Undrain(store.Target{}) },
		},
		"service": {
			func(d *testPlanner) { d.Draining["web"] = &drain{} },
			func(d *testPlanner) { delete(d.Draining, "web") },
		},
		"stop": {
			func(d *testPlanner) { d.Stopping = true },
			func(d *testPlanner) { d.Stopping = false },
		},
	}
	for name, l := range leaves {
		t.Run(name, func(t *testing.T) {
			d := newPlanner(t, time.Second, web)
			d.want(0, "announced")
			l.leave(d)
			d.want(time.Minute, "leaving")
			d.want(999*time.Millisecond, "leaving")
			l.back(d)
			d.want(0, "announced")
			l.leave(d)
			d.want(time.Minute, "leaving")
			if got := d.decide(d.now, &d.Input).Next; !got.Equal(d.now.Add(time.Second)) {
				t.Errorf("the next decision is due at %s, want in a second", got)
			}
			d.want(time.Second, "withdrawn")
			d.want(time.Hour, "withdrawn")
			l.back(d)
			got := d.want(time.Second, "announced")
			if !got.Since.Equal(d.now) || got.Withdrawals != 1 {
				t.Errorf("%+v, want one withdrawal, announced now", got)
			}

			l.leave(d) // a VIP that can't be served is not announced, whatever was promised
			d.want(0, "leaving")
			d.health(0)
			d.want(0, "withdrawn")
			d.health(3)
			d.want(0, "withdrawn")
			l.back(d)
			d.want(0, "announced")
			d.delay = 0
			l.leave(d)
			d.want(0, "withdrawn")
		})
	}
}

// A node that was drained before its agent started announces nothing.
func TestDrainedAtStart(t *testing.T) {
	d := newPlanner(t, time.Second, web)
	d.drain(store.Target{})
	got := d.want(0, "withdrawn")
	if got.Withdrawals != 0 {
		t.Errorf("%d withdrawals of what was never announced", got.Withdrawals)
	}
}

func TestDamping(t *testing.T) {
	flap := func(d *testPlanner, down, up time.Duration) {
		d.health(0)
		d.want(up, "withdrawn")
		d.health(3)
		d.now = d.now.Add(down)
	}
	t.Run("quick", func(t *testing.T) {
		d := newPlanner(t, time.Second, web)
		d.want(0, "announced")
		for range 2 {
			flap(d, time.Second, time.Second)
			d.want(0, "announced")
		}
		flap(d, 0, 0)
		damped := d.want(0, "damped")
		wait := damped.Damped.Sub(d.now)
		if wait < halfLife || wait > 3*halfLife {
			t.Errorf("damped for %s", wait)
		}
		d.want(wait-1, "damped")
		d.health(0)
		d.want(0, "withdrawn") // lost while it was held back: that counts as well
		d.health(3)
		d.want(wait, "announced")
	})
	t.Run("bounded", func(t *testing.T) {
		d := newPlanner(t, time.Second, web)
		d.want(0, "announced")
		for range 1000 {
			d.health(0)
			d.want(time.Millisecond, "withdrawn")
			d.health(3)
			d.now = d.now.Add(time.Millisecond)
			d.decide(d.now, &d.Input)
		}
		d.want(3*halfLife-2*time.Millisecond, "damped")
		d.want(time.Millisecond, "announced")
	})
	t.Run("slow", func(t *testing.T) {
		d := newPlanner(t, time.Second, web)
		for range 1000 {
			d.want(halfLife/2, "announced")
			flap(d, 0, halfLife/2)
		}
	})
	t.Run("undrained", func(t *testing.T) {
		for _, back := range []store.Target{{}, {Service: "web"}} {
			d := newPlanner(t, time.Second, web)
			d.want(0, "announced")
			for range 3 {
				flap(d, 0, 0)
				d.decide(d.now, &d.Input)
			}
			d.want(0, "damped")
			d.drain(back)
			d.want(0, "withdrawn")
			d.Desired = d.store.Undrain(back)
			d.want(0, "announced")
			for range 10 { // drains are never counted
				d.drain(back)
				d.delay = 0
				d.want(time.Millisecond, "withdrawn")
				d.Desired = d.store.Undrain(back)
				d.program()
				d.want(time.Millisecond, "announced")
			}
		}
	})
	t.Run("reconfigured", func(t *testing.T) {
		d := newPlanner(t, time.Second, web)
		for range 10 {
			d.want(time.Millisecond, "announced")
			for _, services := range [][]lb.Service{nil, {web}} {
				if _, err := d.store.Set(services); err != nil {
					t.Fatal(err)
				}
				d.program()
				d.decide(d.now, &d.Input)
			}
		}
	})
}

// Over random histories: an announced VIP is served, or was when an operator began
// to move it away no longer than the delay ago; a served VIP that is not announced
// is damped, and was lost several times, or waits for a moment until all healthy
// backends are in use.
func TestHistories(t *testing.T) {
	const delay = time.Second
	const histories, steps = 200, 300
	for range histories {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			d := newPlanner(t, delay, web, dns)
			losses, moved, waits, was := 0, time.Time{}, time.Time{}, true
			for step := range steps {
				d.now = d.now.Add(time.Duration(random.Int64N(int64(2 * time.Second))))
				d.happen(random)
				served, meant, partly := d.oracle()
				switch {
				case served && meant:
					moved = time.Time{}
				case moved.IsZero() && served:
					moved = d.now
				}
				if was && !served {
					losses++
				}
				was = served
				plan := d.decide(d.now, &d.Input)
				decision := plan.Decisions[0]
				switch wait := len(plan.Routes()) == 0 && meant && partly && decision.Damped.IsZero(); {
				case !wait:
					waits = time.Time{}
				case waits.IsZero():
					waits = d.now
				}
				switch routes := plan.Routes(); {
				case len(routes) > 0 && !served:
					t.Fatalf("step %d: %+v is announced and not served", step, decision)
				case len(routes) > 0 && !meant && d.now.Sub(moved) >= delay:
					t.Fatalf("step %d: %+v is announced since %s too long", step, decision, moved)
				case len(routes) > 0 && routes[0].GracefulShutdown != !meant:
					t.Fatalf("step %d: %+v, GRACEFUL_SHUTDOWN where it is meant: %t", step, decision, meant)
				case len(routes) == 0 && !waits.IsZero() && d.now.Sub(waits) < settleDelay:
				case len(routes) == 0 && served && meant && (decision.Damped.IsZero() || losses < 3 || decision.Damped.Sub(d.now) > 3*halfLife):
					t.Fatalf("step %d: %+v is not announced, after %d losses", step, decision, losses)
				case len(routes) == 0 && decision.Reason == "" && decision.Damped.IsZero():
					t.Fatalf("step %d: %+v has no reason", step, decision)
				}
			}
		})
	}
	fuzzrand.Covered(t, histories, histories*steps)
}

// happen lets something happen.
func (d *testPlanner) happen(random *rand.Rand) {
	switch service := []lb.Service{web, dns}[random.IntN(2)]; random.IntN(12) {
	case 0:
		d.drain(store.Target{})
	case 1, 2:
		d.Desired = d.store.Undrain(store.Target{})
	case 3:
		d.Draining[service.Name] = &drain{}
	case 4, 5:
		delete(d.Draining, service.Name)
	case 6, 7, 8:
		d.evaluate(service, random.IntN(3))
	case 9:
		at := random.IntN(len(d.Programmed))
		d.Programmed[at].Programmed = 0
	default:
		d.program()
	}
}

// oracle computes independently of the planner whether any service is served, and
// whether one is that is not drained, of which partly says that it has healthy backends that
// are not in use.
func (d *testPlanner) oracle() (served, meant, partly bool) {
	_, node := d.Desired.Draining(store.Target{})
	for i, e := range d.Desired.Services {
		status := d.Programmed[i]
		both, healthy := 0, 0
		for j, b := range e.Service.Backends {
			if b.Weight > 0 && !b.Down {
				healthy++
			}
			if b.Weight > 0 && !b.Down && status.Programmed > 0 && status.State.Backends[j].InUse {
				both++
			}
		}
		if both > 0 {
			served = true
			if !node && d.Draining[e.Service.Name] == nil {
				meant, partly = true, partly || both < healthy
			}
		}
	}
	return served, meant, partly
}

// A new route waits until all backends have been checked and are in use, but not long. One that is
// announced stays.
func TestFirstChecks(t *testing.T) {
	// first has the first backends healthy, and the others not checked yet.
	first := func(d *testPlanner, healthy int) {
		var states []health.Verdict
		for i, b := range web.Backends {
			state := health.State{Checked: true, Known: i < healthy, Healthy: i < healthy, Share: lb.WholeShare}
			states = append(states, health.Verdict{VIP: web.VIP, Backend: b.ID(), State: state})
		}
		d.Desired = d.store.ApplyVerdicts(states)
	}
	d := newPlanner(t, time.Second, web)
	first(d, 1)
	d.program()
	if waits := d.want(0, "withdrawn"); waits.Reason != "not all backends have been checked yet" {
		t.Errorf("the reason is %q", waits.Reason)
	}
	first(d, 3)
	d.want(time.Millisecond, "withdrawn") // the data plane doesn't know it yet
	d.program()
	d.want(time.Millisecond, "announced")
	first(d, 1)
	d.program()
	d.want(time.Minute, "announced")
	d.health(0)
	d.want(0, "withdrawn")
	first(d, 1)
	d.program()
	d.want(time.Minute, "withdrawn")
	d.want(settleDelay-1, "withdrawn")
	d.want(1, "announced")
}
