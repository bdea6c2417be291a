// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

func update(t *testing.T, s *store.Store, removed []lb.VIP, changed ...lb.Service) store.Snapshot {
	t.Helper()
	snapshot, err := s.Update(changed, removed)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func TestUpdate(t *testing.T) {
	s := store.New()
	web, dns, ftp := service("web", 2, 1, 2), service("dns", 1, 3), service("ftp", 3, 4)
	other := service("web", 2, 2)
	for _, step := range []struct {
		what    string
		changed []lb.Service
		removed []lb.VIP
		want    string
	}{
		{"the first one says what is desired", nil, nil, "1:"},
		{"nothing", nil, []lb.VIP{web.VIP}, "1:"},
		{"new ones", []lb.Service{web, dns}, nil, "2: dns@2 web@2"},
		{"the same", []lb.Service{web}, nil, "2: dns@2 web@2"},
		{"one changes", []lb.Service{other}, nil, "3: dns@2 web@3"},
		{"one goes, one comes", []lb.Service{ftp}, []lb.VIP{dns.VIP}, "4: web@3 ftp@4"},
		{"removed and changed is changed", []lb.Service{web}, []lb.VIP{web.VIP}, "5: web@5 ftp@4"},
	} {
		if got := text(update(t, s, step.removed, step.changed...)); got != step.want {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
}

// Names pass from one service to another, and are refused while another has them.
func TestUpdateOfNames(t *testing.T) {
	s := store.New()
	set(t, s, service("a", 1), service("b", 2))
	if _, err := s.Update([]lb.Service{service("a", 3)}, nil); err == nil || !strings.Contains(err.Error(), `service "a": the name is taken by vip tcp 10.1.1.1:80`) {
		t.Errorf("a taken name: error %v", err)
	}
	if _, err := s.Update([]lb.Service{service("c", 3), service("d", 3)}, nil); err == nil {
		t.Error("a VIP of two services is taken")
	}
	if got := text(s.Snapshot()); got != "1: a@1 b@1" {
		t.Errorf("a refused change has changed something: %s", got)
	}
	if got := text(update(t, s, nil, service("b", 1), service("a", 2))); got != "2: b@2 a@2" {
		t.Errorf("swapped names: %s", got)
	}
	if got := text(update(t, s, []lb.VIP{service("", 1).VIP}, service("b", 3))); got != "3: a@2 b@3" {
		t.Errorf("the name of one that goes: %s", got)
	}
	if _, err := s.Update([]lb.Service{service("b", 4)}, nil); err == nil {
		t.Error("a name that has passed on is forgotten")
	}
}

// Many updates come to the same as one Set: whatever is desired, judged and
// drained.
func TestUpdateEqualsSet(t *testing.T) {
	for range 40 {
		random := rand.New(rand.NewPCG(rand.Uint64(), 0))
		updated, whole := store.New(), store.New()
		want := map[lb.VIP]lb.Service{}
		for step := range 20 {
			var changed []lb.Service
			var removed []lb.VIP
			for n := range byte(6) {
				svc := checked(string(rune('a'+n)), n, byte(random.IntN(3)), 3+byte(random.IntN(3)))
				switch random.IntN(3) {
				case 0:
					changed, want[svc.VIP] = append(changed, svc), svc
				case 1:
					removed = append(removed, svc.VIP)
					delete(want, svc.VIP)
				}
			}
			var all []lb.Service
			var verdicts []health.Verdict
			for _, svc := range want {
				all = append(all, svc)
				verdicts = append(verdicts, verdict(svc, 0, health.State{Checked: true, Known: true, Healthy: step%2 == 0, Share: lb.WholeShare}))
			}
			concerned := slices.DeleteFunc(slices.Clone(verdicts), func(v health.Verdict) bool {
				return !slices.ContainsFunc(changed, func(s lb.Service) bool { return s.VIP == v.VIP })
			})
			if random.IntN(4) == 0 {
				d := store.Drain{Target: store.Target{Service: "b"}}
				updated.Drain(d)
				whole.Drain(d)
			}
			if _, err := updated.Update(changed, removed, concerned...); err != nil {
				t.Fatal(err)
			}
			got := updated.ApplyVerdicts(verdicts)
			if _, err := whole.Set(all, verdicts...); err != nil {
				t.Fatal(err)
			}
			if got, want := describe(got), describe(whole.Snapshot()); got != want {
				t.Fatalf("step %d: updated\n%s\nset\n%s", step, got, want)
			}
		}
	}
}
