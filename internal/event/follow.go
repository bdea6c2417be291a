// SPDX-License-Identifier: Apache-2.0

package event

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// Follow tells of changes of health and drains as the store has them, until ctx
// ends. What is as it should be when it begins is no news.
func (t *Teller) Follow(ctx context.Context, s *store.Store) {
	var before store.Snapshot
	for {
		after, changed := s.Watch()
		t.changes(before, after)
		before = after
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// changes tells what distinguishes two snapshots.
func (t *Teller) changes(before, after store.Snapshot) {
	for _, d := range before.Drains {
		if _, still := after.Draining(d.Target); !still {
			t.undrained(d.Target)
		}
	}
	for _, d := range after.Drains {
		if _, already := before.Draining(d.Target); !already {
			t.drained(d.Target)
		}
	}
	at := 0 // both are sorted by VIP
	for _, e := range after.Services {
		for at < len(before.Services) && before.Services[at].Configured.VIP.Compare(e.Configured.VIP) < 0 {
			at++
		}
		var was store.Entry
		known := at < len(before.Services) && before.Services[at].Configured.VIP == e.Configured.VIP
		if known {
			was = before.Services[at]
		}
		if known && was.Judged == e.Judged && was.Panic == e.Panic {
			continue
		}
		for _, b := range e.Configured.Backends {
			t.judged(e, b.ID(), was.Health[b.ID()])
		}
		t.panicked(was.Panic, e)
	}
}

// judged tells of a verdict on a backend that says something else than before.
func (t *Teller) judged(e store.Entry, id lb.BackendID, was health.State) {
	state := e.Health[id]
	if !state.Known || e.Configured.Health == nil {
		return
	}
	dead := was.Checked && !was.Healthy // what nobody has judged counts as alive
	service, backend := slog.String("service", e.Configured.Name), slog.String("backend", id.String())
	object := e.Configured.Name + " " + id.String()
	switch {
	case !state.Healthy && (!dead || !was.Known):
		reason := cmp.Or(state.Reason, "its checks failed") // the last one may have succeeded since
		t.log.Warn("backend unhealthy", service, backend, slog.String("reason", reason))
		t.remember("health", object, "unhealthy: "+reason)
	case state.Healthy && dead && was.Known:
		after := state.Since.Sub(was.Since).Round(time.Millisecond)
		t.log.Info("backend healthy", service, backend, slog.String("reason", fmt.Sprintf("its checks succeed again, after %s", after)))
		t.remember("health", object, fmt.Sprintf("healthy after %s", after))
	case state.Healthy && dead:
		t.log.Info("backend healthy", service, backend, slog.String("reason", "its first check succeeded"))
		t.remember("health", object, "healthy: its first check succeeded")
	}
}

// panicked tells that a service begins or ends to ignore health.
func (t *Teller) panicked(was bool, e store.Entry) {
	if was == e.Panic {
		return
	}
	reason := fmt.Sprintf("%d of %d backends are healthy", e.Healthy, len(e.Configured.Backends))
	service, why := slog.String("service", e.Configured.Name), slog.String("reason", reason)
	if e.Panic {
		t.log.Warn("service in panic", service, why)
		t.remember("health", e.Configured.Name, "in panic, health is ignored: "+reason)
		return
	}
	t.log.Info("service out of panic", service, why)
	t.remember("health", e.Configured.Name, "out of panic: "+reason)
}

// What operators say is reason enough.
const operator = "an operator's command"

func (t *Teller) drained(target store.Target) {
	service, reason := slog.String("service", target.Service), slog.String("reason", operator)
	switch {
	case target == store.Target{}:
		t.log.Info("node draining", slog.String("reason", "an operator's command, or SIGTERM"))
	case target.Backend.IsValid():
		t.log.Info("backend drained", service, slog.String("backend", target.Backend.String()), reason)
	default:
		t.log.Info("service drained", service, reason)
	}
	t.remember("drain", target.String(), "drained")
}

func (t *Teller) undrained(target store.Target) {
	service, reason := slog.String("service", target.Service), slog.String("reason", operator)
	switch {
	case target == store.Target{}:
		t.log.Info("node no longer draining", reason)
	case target.Backend.IsValid():
		t.log.Info("backend undrained", service, slog.String("backend", target.Backend.String()), reason)
	default:
		t.log.Info("service undrained", service, reason)
	}
	t.remember("drain", target.String(), "undrained")
}
