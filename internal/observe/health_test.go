// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/fake"
)

// An agent is stuck when one call of its data plane doesn't end, and not while
// it does much or nothing.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, tt := range []struct {
			what  string
			since time.Time
			want  string
		}{
			{"idle", time.Time{}, ""},
			{"busy", now, ""},
			{"slow", now.Add(-30 * time.Second), ""},
			{"stuck", now.Add(-31 * time.Second), "reconcile: the data plane has been at one call for 31s"},
		} {
			agent := &fakeAgent{calling: tt.since}
			observer := observe.NewObserver(agent, nil, slog.New(slog.DiscardHandler))
			if got := text(observer.Alive()); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
			}
		}
	})
}

// So is one whose counters are no longer read; that they can't be read
// doesn't count.
func TestObserverAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		looks := 0
		observer := observe.NewObserver(&fakeAgent{stats: func(context.Context) (dataplane.Stats, error) {
			if looks++; looks > 100 {
				<-hang
			}
			return dataplane.Stats{}, errors.New("broken")
		}}, nil, slog.New(slog.DiscardHandler))
		fake.Run(t, fake.Part(observer.Run))
		time.Sleep(100 * time.Second)
		if err := observer.Alive(); err != nil {
			t.Errorf("while it looks: %v", err)
		}
		time.Sleep(time.Minute)
		if got, want := text(observer.Alive()), "observe: the counters were last read 1m1s ago"; got != want {
			t.Errorf("when it hangs: %q, want %q", got, want)
		}
		close(hang)
	})
}

func TestReady(t *testing.T) {
	attached := []observe.Attachment{{Interface: "eth0", Mode: "native"}}
	const untried, unattached, drained = "the first configuration has not been tried yet",
		"the data plane is attached to no interface", "the node is drained since 2026-01-02T03:04:05Z"
	for _, tt := range []struct {
		begun   bool
		to      []observe.Attachment
		drained store.Target
		want    string
	}{
		{false, nil, store.Target{Service: "web"}, untried},
		{false, attached, store.Target{Service: "web"}, untried}, // adopted
		{false, attached, store.Target{}, untried + "\n" + drained},
		{true, nil, store.Target{Service: "web"}, unattached},
		{true, attached, store.Target{Service: "web"}, ""},
		{true, attached, store.Target{}, drained},
	} {
		desired := store.New()
		desired.Drain(store.Drain{Target: tt.drained, Since: started})
		agent := &fakeAgent{attached: tt.begun, attachments: tt.to, snapshot: desired.Snapshot()}
		if got := text(observe.NewObserver(agent, nil, slog.New(slog.DiscardHandler)).Ready()); got != tt.want {
			t.Errorf("begun %t, attached to %v, %+v drained: %q, want %q", tt.begun, tt.to, tt.drained, got, tt.want)
		}
	}
	agent := &fakeAgent{attached: true, attachments: attached, followed: []source.FollowedBackends{
		{Service: "web", From: "Service web, port http", Error: "forbidden", Awaited: true}, {Service: "new", Error: "no such name"},
	}}
	const want = "service web: no backends yet from Service web, port http: forbidden"
	if got := text(observe.NewObserver(agent, nil, slog.New(slog.DiscardHandler)).Ready()); got != want {
		t.Errorf("before the first answer: %q, want %q", got, want)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// fakeAgent answers with its fields.
type fakeAgent struct {
	calling     time.Time
	attached    bool
	attachments []observe.Attachment
	snapshot    store.Snapshot
	followed    []source.FollowedBackends
	stats       func(context.Context) (dataplane.Stats, error)
}

func (a *fakeAgent) Describe() observe.Status {
	return observe.Status{DataPlane: observe.DataPlane{Attachments: a.attachments}, FollowedBackends: a.followed}
}

func (a *fakeAgent) Snapshot() store.Snapshot { return a.snapshot }

func (a *fakeAgent) Routes() observe.Routes { return observe.Routes{} }

func (a *fakeAgent) Stats(ctx context.Context) (dataplane.Stats, error) {
	if a.stats == nil {
		return dataplane.Stats{}, nil
	}
	return a.stats(ctx)
}

func (a *fakeAgent) Calling() time.Time { return a.calling }

func (a *fakeAgent) Attached() bool { return a.attached }

func read(t *testing.T, agent observe.Agent) *observe.Snapshot {
	t.Helper()
	s, err := observe.NewObserver(agent, nil, slog.New(slog.DiscardHandler)).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reloadingAgent gets a new configuration after each look at its services. The digest of
// a configuration is the revision of its services.
type reloadingAgent struct {
	fakeAgent
	revision uint64
}

func (a *reloadingAgent) Describe() observe.Status {
	return observe.Status{Config: source.File{Digest: fmt.Sprint(a.revision)}}
}

func (a *reloadingAgent) Snapshot() store.Snapshot {
	defer func() { a.revision++ }()
	return store.Snapshot{Revision: a.revision}
}

// A status doesn't name a newer configuration than its services have: a reader could
// take the newer one for programmed.
func TestStatusDuringReload(t *testing.T) {
	snapshot := read(t, &reloadingAgent{})
	if s := snapshot.Status(); s.Config.Digest != fmt.Sprint(s.Revision) {
		t.Errorf("configuration %s with services of revision %d", s.Config.Digest, s.Revision)
	}
}

// Until there is a verdict on a new backend, its reason says whether it has been probed.
func TestReasonBeforeVerdict(t *testing.T) {
	svc := fake.Checked("web", web, "10.0.0.1", "10.0.0.2")
	desired := store.New()
	if _, err := desired.Set([]lb.Service{svc}); err != nil {
		t.Fatal(err)
	}
	desired.ApplyVerdicts([]health.Verdict{
		{VIP: svc.VIP, Backend: svc.Backends[0].ID(), State: health.State{Checked: true}},
		{VIP: svc.VIP, Backend: svc.Backends[1].ID(), State: health.State{Checked: true, Reason: "connection refused"}},
	})
	s := read(t, &fakeAgent{snapshot: desired.Snapshot()})
	var reasons []string
	for _, b := range s.AllBackends() {
		reasons = append(reasons, b.Reason)
	}
	if want := []string{"not probed yet", "its first checks failed"}; !slices.Equal(reasons, want) {
		t.Errorf("reasons %q, want %q", reasons, want)
	}
}
