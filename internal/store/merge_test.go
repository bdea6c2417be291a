// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/fake"
	"fairlead.io/fairlead/test/fuzzrand"
)

// checked is a service whose backends are probed.
func checked(name string, n byte, backends ...byte) lb.Service {
	return fake.Checked(name, fake.VIP(fmt.Sprint("10.1.1.", n)), hosts(backends)...)
}

func verdict(svc lb.Service, backend int, state health.State) health.Verdict {
	state.Checked, state.Known = true, true
	return health.Verdict{VIP: svc.VIP, Backend: svc.Backends[backend].ID(), State: state}
}

// only returns the store's one service.
func only(t *testing.T, s store.Snapshot) store.Entry {
	t.Helper()
	if len(s.Services) != 1 {
		t.Fatalf("%d services, want one", len(s.Services))
	}
	return s.Services[0]
}

func TestJudge(t *testing.T) {
	s, web := store.New(), checked("web", 1, 1, 2)
	before := only(t, set(t, s, web))
	dead := health.State{Reason: "connection refused"}

	e := only(t, s.ApplyVerdicts([]health.Verdict{verdict(web, 0, dead)}))
	if !e.Service.Backends[0].Down || e.Service.Backends[1].Down || e.Healthy != 1 || e.Revision != 2 {
		t.Errorf("after a backend died: %+v at revision %d, %d healthy", e.Service.Backends, e.Revision, e.Healthy)
	}
	if e.Configured != before.Configured || e.Configured.Backends[0].Down {
		t.Error("a verdict changes what is configured")
	}
	if got := e.Health[web.Backends[0].ID()].Reason; got != dead.Reason {
		t.Errorf("reason %q, want %q", got, dead.Reason)
	}

	dead.Reason = "timeout" // news, but not for the data plane
	if e := only(t, s.ApplyVerdicts([]health.Verdict{verdict(web, 0, dead)})); e.Revision != 2 || s.Snapshot().Revision != 3 {
		t.Errorf("another reason makes revision %d of %d, want 2 of 3", e.Revision, s.Snapshot().Revision)
	}
	dead.Took = time.Second
	if s.ApplyVerdicts([]health.Verdict{verdict(web, 0, dead)}).Revision != 3 {
		t.Error("how long a probe took is taken for news")
	}
	unknown := health.Verdict{VIP: service("x", 9).VIP}
	if s.ApplyVerdicts([]health.Verdict{unknown}).Revision != 3 {
		t.Error("a verdict on an unknown service is taken for news")
	}

	web.Backends[1].Weight = 5
	if e := only(t, set(t, s, web)); !e.Service.Backends[0].Down {
		t.Error("a change of the service forgets what is known of its backends")
	}
	e = only(t, s.ApplyVerdicts([]health.Verdict{verdict(web, 0, health.State{Healthy: true, Share: 3})}))
	if b := e.Service.Backends[0]; b.Down || b.Share != 3 {
		t.Errorf("in slow start the backend is %+v", b)
	}
	e = only(t, s.ApplyVerdicts([]health.Verdict{verdict(web, 0, health.State{Healthy: true, Share: 16})}))
	if b := e.Service.Backends[0]; b.Down || b.Share != 0 || e.Service != e.Configured {
		t.Errorf("after slow start the backend is %+v", b)
	}
	web.Health = nil
	s.ApplyVerdicts([]health.Verdict{verdict(web, 0, dead)})
	if e := only(t, set(t, s, web)); e.Service.Backends[0].Down || len(e.Health) > 0 {
		t.Error("a service without a check has a backend that is down")
	}
}

func TestDrain(t *testing.T) {
	s, web := store.New(), service("web", 1, 1, 2)
	backend := store.Target{Service: "web", Backend: web.Backends[1].ID()}
	whole, node := store.Target{Service: "web"}, store.Target{}
	at := time.Unix(1, 0)

	if snapshot := s.Drain(store.Drain{Target: backend, Since: at}); snapshot.Revision != 0 {
		t.Error("a drain says what is desired")
	}
	e := only(t, set(t, s, web))
	if b := e.Service.Backends[1]; !b.Drained || b.Weight != 0 || e.Service.Backends[0].Drained || e.Drained {
		t.Errorf("a drain from before: %+v", e.Service.Backends)
	}
	if s.Drain(store.Drain{Target: backend, Since: at.Add(time.Hour)}).Revision != 1 {
		t.Error("draining again is a change")
	}
	if d, ok := s.Snapshot().Draining(backend); !ok || !d.Since.Equal(at) {
		t.Errorf("drained again since %s (%t), want the first time", d.Since, ok)
	}
	e = only(t, s.Drain(store.Drain{Target: whole, Since: at}))
	if b := e.Service.Backends[0]; !b.Drained || b.Weight != 0 || !e.Drained {
		t.Errorf("the whole service: %+v", e.Service.Backends)
	}
	e = only(t, s.Undrain(whole))
	if e.Drained || e.Service.Backends[0].Drained || !e.Service.Backends[1].Drained {
		t.Errorf("the service is back, its backend is not: %+v", e.Service.Backends)
	}
	if e := only(t, s.Undrain(backend, whole)); e.Service != e.Configured {
		t.Errorf("nothing is drained: %+v", e.Service.Backends)
	}
	revision := e.Revision + 1
	snapshot := s.Drain(store.Drain{Target: node, Since: at})
	if _, ok := snapshot.Draining(node); !ok || only(t, snapshot).Revision != revision {
		t.Error("draining the node changes a service, or is not seen")
	}
}

// A server that gets no new flows and refuses connections keeps those that it has,
// until nothing comes back from it; of datagrams that is unknown.
func TestDrainedServerRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		weight   int
		drained  bool
		protocol lb.Protocol
		state    health.State
		down     bool
	}{
		"one that gets flows":            {1, false, lb.TCP, health.State{}, true},
		"refuses":                        {0, false, lb.TCP, health.State{}, false},
		"drained, and refuses":           {1, true, lb.TCP, health.State{}, false},
		"silent":                         {0, false, lb.TCP, health.State{Silent: true}, true},
		"drained, and silent":            {1, true, lb.TCP, health.State{Silent: true}, true},
		"refuses datagrams":              {0, false, lb.UDP, health.State{}, true},
		"drained, and refuses datagrams": {1, true, lb.UDP, health.State{}, true},
		"drained and healthy":            {1, true, lb.TCP, health.State{Healthy: true}, false},
	} {
		s, web := store.New(), checked("web", 1, 1, 2)
		web.Protocol, web.Backends[0].Weight = test.protocol, test.weight
		set(t, s, web)
		if test.drained {
			s.Drain(store.Drain{Target: store.Target{Service: "web", Backend: web.Backends[0].ID()}})
		}
		e := only(t, s.ApplyVerdicts([]health.Verdict{verdict(web, 0, test.state)}))
		b := e.Service.Backends[0]
		if gets := test.weight > 0 && !test.drained; b.Down != test.down || b.Weight > 0 != gets {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// With fewer than the threshold of living backends health is ignored; drained
// backends are not counted.
func TestPanic(t *testing.T) {
	s, web := store.New(), checked("web", 1, 1, 2, 3, 4)
	web.Health.PanicThreshold = 50
	set(t, s, web)
	dead := health.State{Silent: true}
	e := only(t, s.ApplyVerdicts([]health.Verdict{verdict(web, 0, dead), verdict(web, 1, dead)}))
	if e.Panic || e.Healthy != 2 || !e.Service.Backends[0].Down {
		t.Errorf("half of the backends live: panic %t, %d healthy", e.Panic, e.Healthy)
	}
	e = only(t, s.ApplyVerdicts([]health.Verdict{verdict(web, 2, dead)}))
	if !e.Panic || e.Healthy != 1 || e.Service != e.Configured {
		t.Errorf("a quarter lives: panic %t, %d healthy, %+v", e.Panic, e.Healthy, e.Service.Backends)
	}
	for i := range 3 {
		e = only(t, s.Drain(store.Drain{Target: store.Target{Service: "web", Backend: web.Backends[i].ID()}}))
	}
	if e.Panic || !e.Service.Backends[0].Down || e.Service.Backends[3].Down {
		t.Errorf("all that is to get flows lives: panic %t, %+v", e.Panic, e.Service.Backends)
	}
	e = only(t, s.Drain(store.Drain{Target: store.Target{Service: "web", Backend: web.Backends[3].ID()}}))
	if e.Panic {
		t.Error("panic though all is drained")
	}
}

// A backend that counts as down until it has been probed is never up before.
func TestSetWithVerdicts(t *testing.T) {
	s, web := store.New(), checked("web", 1, 1, 2)
	unknown := health.Verdict{VIP: web.VIP, Backend: web.Backends[1].ID(), State: health.State{Checked: true}}
	for range 2 {
		snapshot, err := s.Set([]lb.Service{web}, unknown)
		if e := only(t, snapshot); err != nil || e.Revision != 1 || e.Service.Backends[1].Weight != 0 || e.Service.Backends[1].Down || e.Service.Backends[0].Weight == 0 {
			t.Errorf("revision %d, %+v (%v)", e.Revision, e.Service.Backends, err)
		}
	}
}

// Whatever came in whatever order, the outcome follows from the last configuration,
// the last verdicts and the present drains; and a service whose content is as it
// was keeps its pointer.
func TestMergeHistories(t *testing.T) {
	const histories, steps = 100, 40
	for seed := range uint64(histories) {
		random := rand.New(rand.NewPCG(seed, 0))
		s, h := store.New(), newHistory(random)
		before := s.Snapshot()
		for range steps {
			after := h.step(t, s)
			for _, e := range after.Services {
				was, found := before.Find(e.Service.VIP)
				same := found && e.Service.Equal(was.Service)
				if same != (found && e.Revision == was.Revision) || same != (found && e.Service == was.Service) {
					t.Fatalf("seed %d: %+v at revision %d follows %+v at %d", seed, e.Service, e.Revision, was.Service, was.Revision)
				}
			}
			before = after
			if got, want := describe(after), describe(h.fresh(t, h.services)); got != want {
				t.Fatalf("seed %d: by steps\n%s\nand at once\n%s", seed, got, want)
			}
			h.checkBackups(t, after)
		}
	}
	fuzzrand.Covered(t, histories, histories*steps)
}

// describe formats a snapshot without its revisions.
func describe(s store.Snapshot) string {
	var out strings.Builder
	for _, e := range s.Services {
		fmt.Fprintf(&out, "%s: %d healthy, panic %t, on backups %t, drained %t\n", e.Service.Name, e.Healthy, e.Panic, e.OnBackups, e.Drained)
		for _, b := range e.Service.Backends {
			fmt.Fprintf(&out, "  %+v %+v\n", b, e.Health[b.ID()])
		}
	}
	return fmt.Sprint(out.String(), s.Drains)
}

// history records the outcome of a random history.
type history struct {
	random   *rand.Rand
	services []lb.Service
	verdicts map[string]health.Verdict
	drains   map[store.Target]bool
}

func newHistory(random *rand.Rand) *history {
	return &history{random: random, verdicts: map[string]health.Verdict{}, drains: map[store.Target]bool{}}
}

func (h *history) step(t *testing.T, s *store.Store) store.Snapshot {
	switch h.random.IntN(5) {
	case 0:
		h.configure()
		return set(t, s, h.services...)
	case 1, 2:
		return h.judge(s)
	default:
		return h.drain(s)
	}
}

// configure makes services, some of them with checks. A verdict on a backend that
// leaves is forgotten.
func (h *history) configure() {
	h.services = nil
	known := map[string]bool{}
	for n := range byte(3) {
		svc := checked(fmt.Sprint("s", n), n)
		svc.Health.PanicThreshold = 40 * h.random.IntN(2)
		for host := range byte(4) {
			if h.random.IntN(4) > 0 {
				svc.Backends = append(svc.Backends, service("", n, host).Backends...)
				svc.Backends[len(svc.Backends)-1].Backup = h.random.IntN(3) == 0
				known[fmt.Sprint(svc.VIP, svc.Backends[len(svc.Backends)-1].ID())] = true
			}
		}
		h.random.Shuffle(len(svc.Backends), func(i, j int) { svc.Backends[i], svc.Backends[j] = svc.Backends[j], svc.Backends[i] })
		h.services = append(h.services, svc)
	}
	for key := range h.verdicts {
		if !known[key] {
			delete(h.verdicts, key)
		}
	}
}

func (h *history) judge(s *store.Store) store.Snapshot {
	var verdicts []health.Verdict
	for _, svc := range h.services {
		for i := range svc.Backends {
			if h.random.IntN(3) == 0 {
				v := verdict(svc, i, health.State{Healthy: h.random.IntN(2) == 0, Share: 1 + h.random.IntN(16)})
				verdicts = append(verdicts, v)
				h.verdicts[fmt.Sprint(v.VIP, v.Backend)] = v
			}
		}
	}
	return s.ApplyVerdicts(verdicts)
}

func (h *history) drain(s *store.Store) store.Snapshot {
	target := store.Target{Service: fmt.Sprint("s", h.random.IntN(4))}
	if h.random.IntN(3) > 0 {
		target.Backend = service("", byte(h.random.IntN(3)), byte(h.random.IntN(4))).Backends[0].ID()
	}
	if h.drains[target] {
		delete(h.drains, target)
		return s.Undrain(target)
	}
	h.drains[target] = true
	return s.Drain(store.Drain{Target: target})
}

// fresh returns the snapshot of a store that has the outcome from the start, with these
// services.
func (h *history) fresh(t *testing.T, services []lb.Service) store.Snapshot {
	s := store.New()
	for target := range h.drains {
		s.Drain(store.Drain{Target: target})
	}
	if services != nil {
		set(t, s, services...)
	}
	var verdicts []health.Verdict
	for _, v := range h.verdicts {
		verdicts = append(verdicts, v)
	}
	s.ApplyVerdicts(verdicts)
	return s.Snapshot()
}

// takesFlows reports whether a backend gets new flows.
func takesFlows(b lb.Backend) bool { return b.Weight > 0 && !b.Down }

// checkBackups checks that backups get new flows if no other backend can, and only then, and that
// all else is as it would be without them.
func (h *history) checkBackups(t *testing.T, s store.Snapshot) {
	t.Helper()
	var without []lb.Service
	for _, svc := range h.services {
		svc.Backends = slices.DeleteFunc(slices.Clone(svc.Backends), func(b lb.Backend) bool { return b.Backup })
		without = append(without, svc)
	}
	plain := h.fresh(t, without)
	for _, e := range s.Services {
		alone, _ := plain.Find(e.Service.VIP)
		var others []lb.Backend
		backups, healthy := 0, 0
		for i, b := range e.Service.Backends {
			if !b.Backup {
				others = append(others, b)
				continue
			}
			if takesFlows(b) {
				backups++
			}
			if state, judged := e.Health[b.ID()]; !b.Drained && e.Configured.Backends[i].Weight > 0 && (!judged || state.Healthy) {
				healthy++
			}
		}
		usable := slices.ContainsFunc(others, takesFlows)
		if usable && backups > 0 || !usable && backups == 0 && healthy > 0 {
			t.Fatalf("%d of %d healthy backups get new flows with %+v", backups, healthy, others)
		}
		if !e.OnBackups && !slices.Equal(others, alone.Service.Backends) {
			t.Fatalf("with backups %+v, without %+v", others, alone.Service.Backends)
		}
	}
}

// A backup gets new flows while no other backend can. One that isn't used keeps its flows.
func TestBackups(t *testing.T) {
	const primary, backup = false, true
	type backend struct {
		backup, dead, drained bool
		weight, want          int
	}
	for name, test := range map[string]struct {
		panic    int
		backends []backend
	}{
		"unused":           {0, []backend{{primary, false, false, 2, 2}, {backup, false, false, 3, 0}}},
		"one left":         {0, []backend{{primary, true, false, 2, -1}, {primary, false, false, 1, 1}, {backup, false, false, 3, 0}}},
		"none left":        {0, []backend{{primary, true, false, 2, -1}, {backup, false, false, 3, 3}, {backup, true, false, 1, -1}}},
		"others drained":   {0, []backend{{primary, false, true, 2, 0}, {backup, false, false, 3, 3}}},
		"others weigh 0":   {0, []backend{{primary, false, false, 0, 0}, {backup, false, false, 3, 3}}},
		"drained too":      {0, []backend{{primary, true, false, 1, -1}, {backup, false, true, 3, 0}}},
		"all dead":         {0, []backend{{primary, true, false, 1, -1}, {backup, true, false, 3, 0}}},
		"backups only":     {0, []backend{{backup, false, false, 1, 1}, {backup, true, false, 3, -1}}},
		"panic of others":  {60, []backend{{primary, true, false, 1, 1}, {primary, false, false, 1, 1}, {backup, false, false, 3, 0}}},
		"backup for panic": {60, []backend{{primary, true, false, 1, -1}, {backup, false, false, 3, 3}}},
		"panic of backups": {60, []backend{{primary, true, false, 1, -1}, {backup, false, false, 3, 3}, {backup, true, false, 1, 1}}},
		"panic of all":     {60, []backend{{primary, true, false, 1, 1}, {backup, true, false, 3, 0}}},
	} {
		s, web := store.New(), checked("web", 1, 1, 2, 3)
		web.Health.PanicThreshold = test.panic
		web.Backends = web.Backends[:len(test.backends)]
		var verdicts []health.Verdict
		for i, b := range test.backends {
			web.Backends[i].Backup, web.Backends[i].Weight = b.backup, b.weight
			verdicts = append(verdicts, verdict(web, i, health.State{Healthy: !b.dead, Share: lb.WholeShare}))
			if b.drained {
				s.Drain(store.Drain{Target: store.Target{Service: "web", Backend: web.Backends[i].ID()}})
			}
		}
		set(t, s, web)
		e := only(t, s.ApplyVerdicts(verdicts))
		for i, b := range e.Service.Backends {
			got := b.Weight
			if b.Down {
				got = -1
			}
			if got != test.backends[i].want {
				t.Errorf("%s: backend %d has weight %d, want %d", name, i, got, test.backends[i].want)
			}
		}
	}
}
