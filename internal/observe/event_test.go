// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/fake"
)

var web = func() lb.Service {
	svc := fake.Checked("web", fake.VIP("10.1.1.1"), "10.0.0.1", "10.0.0.2")
	svc.Health.PanicThreshold = 50
	return svc
}()

// Every change is recorded once, with its object and its reason.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out fake.Log
		recorder, s := NewRecorder(out.Logger(slog.LevelKey)), store.New()
		stop := fake.Run(t, fake.Part(func(ctx context.Context) { recorder.Follow(ctx, s.Watch) }))
		judge := func(backend int, state health.State) func() {
			state.Checked, state.Since = true, time.Now()
			return func() {
				state.Since = time.Now()
				s.ApplyVerdicts([]health.Verdict{{VIP: web.VIP, Backend: web.Backends[backend].ID(), State: state}})
			}
		}
		alive, dead := health.State{Known: true, Healthy: true}, health.State{Known: true, Reason: "connection refused"}
		one := store.Target{Service: "web", Backend: web.Backends[0].ID()}
		for i, step := range []struct {
			do   func()
			want string
		}{
			{func() {
				if _, err := s.Set([]lb.Service{web}); err != nil {
					t.Error(err)
				}
			}, ""},
			{judge(0, health.State{Healthy: true}), ""},
			{judge(1, health.State{}), ""},
			{judge(0, alive), ""},
			{judge(1, alive), `msg="backend healthy" service=web backend=10.0.0.2:80 reason="its first check succeeded"`},
			{judge(0, dead), `msg="backend unhealthy" service=web backend=10.0.0.1:80 reason="connection refused"`},
			{judge(0, dead), ""},
			{judge(1, dead), `msg="backend unhealthy" service=web backend=10.0.0.2:80 reason="connection refused"
msg="service in panic" service=web reason="0 of 2 backends are healthy"`},
			{judge(0, alive), `msg="backend healthy" service=web backend=10.0.0.1:80 reason="its checks succeed again, after 2s"
msg="service out of panic" service=web reason="1 of 2 backends are healthy"`},
			{func() { s.Drain(store.Drain{Target: one}) }, `msg="backend drained" service=web backend=10.0.0.1:80 reason="an operator's command"
msg="service in panic" service=web reason="1 of 2 backends are healthy"`},
			{func() { s.Drain(store.Drain{Target: one}) }, ""},
			{func() { s.Undrain(one) }, `msg="backend undrained" service=web backend=10.0.0.1:80 reason="an operator's command"
msg="service out of panic" service=web reason="1 of 2 backends are healthy"`},
			{func() { s.Drain(store.Drain{Target: store.Target{Service: "web"}}) },
				`msg="service drained" service=web reason="an operator's command"`},
			{func() { s.Undrain(store.Target{Service: "web"}) },
				`msg="service undrained" service=web reason="an operator's command"`},
			{func() { s.Drain(store.Drain{}) }, `msg="node draining" reason="an operator's command, or SIGTERM"`},
			{func() { s.Undrain(store.Target{}) }, `msg="node no longer draining" reason="an operator's command"`},
			{func() { recorder.ProgramReplaced("services need quic") }, `msg="program replaced" reason="services need quic"`},
			{func() { recorder.FlowsUnrecorded(web.VIP) }, `msg="too many new flows to record" vip="tcp 10.1.1.1:80"`},
		} {
			time.Sleep(time.Second)
			step.do()
			synctest.Wait()
			if got := strings.TrimSpace(out.Take()); got != step.want {
				t.Errorf("step %d: got\n%s\nwant\n%s", i, got, step.want)
			}
		}
		stop()
		latest := recorder.Latest()
		if len(latest) != 16 || latest[0].Kind != "flows" || latest[15].Object != "web 10.0.0.2:80" {
			t.Errorf("%d events remembered: %+v", len(latest), latest)
		}
	})
}

// A flood of events is cut, and the suppressed events are counted.
func TestEventRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out fake.Log
		log := slog.New(limited(out.Logger(slog.LevelKey).Handler()))
		groups := []*slog.Logger{log, log.With("a", 1), log.WithGroup("g")} // they share the limit
		for i := range 1000 {
			groups[i%3].Info("flood", "n", i)
		}
		synctest.Wait()
		if got := strings.Count(out.Take(), "msg=flood"); got != 200 {
			t.Errorf("%d lines at once, want 200", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got, want := out.Take(), "msg=\"events suppressed\" count=800\n"; got != want {
			t.Errorf("after a flood: %q, want %q", got, want)
		}
		for range 100 {
			log.Info("flood")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := out.Take(); strings.Count(got, "msg=flood") != 40 || !strings.HasSuffix(got, " count=60\n") {
			t.Errorf("after two seconds, want 40 lines and a summary of 60:\n%s", got)
		}
	})
}

// The latest hundred events are kept.
func TestLatestEvents(t *testing.T) {
	const kept = 100
	recorder := NewRecorder(slog.New(slog.DiscardHandler))
	for i := range kept + 5 {
		recorder.Add(Event{Object: fmt.Sprint(i)})
	}
	latest := recorder.Latest()
	if len(latest) != kept || latest[0].Object != fmt.Sprint(kept+4) || latest[kept-1].Object != "5" {
		t.Errorf("%d events, from %s to %s", len(latest), latest[0].Object, latest[len(latest)-1].Object)
	}
}
