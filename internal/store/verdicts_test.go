// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/fake"
)

// verdictsOf sets verdicts of a service's backends and returns the next agent's, by
// backend and after the file's age.
func verdictsOf(t *testing.T, svc lb.Service, state func(i int) health.State, age time.Duration) map[string]health.State {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.health.json")
	s := store.New()
	var verdicts []health.Verdict
	for i, b := range svc.Backends {
		verdicts = append(verdicts, health.Verdict{VIP: svc.VIP, Backend: b.ID(), State: state(i)})
	}
	if _, err := s.Set([]lb.Service{svc}, verdicts...); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop() // the last verdicts are saved
	s.SaveVerdicts(ctx, path, slog.New(slog.DiscardHandler))
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v: want a file with mode 0600", info, err)
	}
	if err := os.Chtimes(path, time.Time{}, info.ModTime().Add(-age)); err != nil {
		t.Fatal(err)
	}
	return store.LoadVerdicts(path, slog.New(slog.DiscardHandler))
}

func checkedService() lb.Service {
	svc := services()[0]
	svc.Health = fake.Checked("", svc.VIP).Health
	return svc
}

// Only verdicts that differ from the backends' initial state are saved, for a short
// time.
func TestSavedVerdicts(t *testing.T) {
	dead := health.State{Checked: true, Known: true, Silent: true, Share: lb.WholeShare, Reason: "timed out after 1s", Since: time.Unix(1e9, 0).UTC()}
	alive := health.State{Checked: true, Known: true, Healthy: true, Share: lb.WholeShare}
	firstDead := func(i int) health.State {
		if i == 0 {
			return dead
		}
		return alive
	}
	svc := checkedService()
	first := health.Identity(&svc, svc.Backends[0])
	if got := verdictsOf(t, svc, firstDead, 0); len(got) != 1 || got[first] != dead {
		t.Errorf("saved %+v, want the dead backend %s", got, first)
	}
	svc.Health.Initially = lb.InitiallyUnhealthy
	if got := verdictsOf(t, svc, firstDead, 0); len(got) != len(svc.Backends)-1 || slices.Contains(slices.Collect(maps.Keys(got)), first) {
		t.Errorf("initially unhealthy: saved %+v, want the living backends", got)
	}
	for _, age := range []time.Duration{11 * time.Minute, -11 * time.Minute} {
		if got := verdictsOf(t, svc, firstDead, age); got != nil {
			t.Errorf("after %s: %+v, want none", age, got)
		}
	}
}

// Verdicts are saved as they come; an earlier agent's stay until the first update.
func TestVerdictsSavedOnChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.health.json")
	if err := os.WriteFile(path, []byte(`{"earlier": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s := store.New()
	fake.Run(t, fake.Part(func(ctx context.Context) { s.SaveVerdicts(ctx, path, log) }))
	s.Drain(store.Drain{Target: store.Target{Service: "web"}})
	if _, early := store.LoadVerdicts(path, log)["earlier"]; !early {
		t.Fatal("verdicts are lost before the first update")
	}
	svc := checkedService()
	if _, err := s.Set([]lb.Service{svc}); err != nil {
		t.Fatal(err)
	}
	for _, healthy := range []bool{false, true, false} {
		s.ApplyVerdicts([]health.Verdict{{VIP: svc.VIP, Backend: svc.Backends[0].ID(), State: health.State{Known: true, Healthy: healthy}}})
		await.True(t, fmt.Sprintf("verdict healthy %t is saved", healthy), func() bool {
			saved := store.LoadVerdicts(path, log)
			_, early := saved["earlier"]
			return !early && len(saved) == 1 != healthy
		})
	}
}

func TestCorruptVerdicts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.health.json")
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if got := store.LoadVerdicts(path, logger); got != nil || log.Len() > 0 {
		t.Errorf("without a file: %v, log %s", got, &log)
	}
	for _, text := range []string{"", "[]", `{"a": 1}`, "\x00"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		if got := store.LoadVerdicts(path, logger); got != nil || !strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("%q: %v, log %s", text, got, &log)
		}
	}
}

// FuzzVerdicts shows that no file of verdicts keeps an agent from starting: health and store
// use its readable part. THIS is the first backend.
func FuzzVerdicts(f *testing.F) {
	svc := checkedService()
	first := health.Identity(&svc, svc.Backends[0])
	for _, seed := range []string{
		`{"THIS": {"Checked": true, "Known": true, "Silent": true, "Share": 16, "Reason": "timed out after 1s", "Since": "2001-09-09T01:46:40Z", "Took": 1}}`,
		`{"THIS": {"Healthy": true, "Silent": true, "Share": -1, "Reason": "\ud800", "Since": "0000-01-01T00:00:00+23:59"}}`,
		`{"THIS": {}, "": {"Took": -1}}`, `{"THIS": null}`, `{"THIS": 1}`, `{"THIS": {"share": 1e9}}`, `null`, `[]`, ``,
	} {
		f.Add(seed)
	}
	path := filepath.Join(f.TempDir(), "agent.health.json")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "THIS", first)), 0o600); err != nil {
			t.Fatal(err)
		}
		monitor := health.New(health.Config{
			Paths: health.DirectPaths{}, Prober: func(*lb.HealthCheck) health.Prober { return nil }, // it isn't run
			Earlier: store.LoadVerdicts(path, slog.New(slog.DiscardHandler)), Log: slog.New(slog.DiscardHandler),
		})
		monitor.Set([]lb.Service{svc})
		states, s := monitor.States(), store.New()
		if _, err := s.Set([]lb.Service{svc}, states...); err != nil {
			t.Fatal(err)
		}
		for _, v := range states {
			if !v.Checked || v.Share != lb.WholeShare || v.Healthy && v.Silent {
				t.Errorf("%s begins with %+v", v.Backend, v.State)
			}
			if got := s.Snapshot().Services[0].Health[v.Backend]; got != v.State {
				t.Errorf("%s: the store has %+v, want %+v", v.Backend, got, v.State)
			}
		}
	})
}
