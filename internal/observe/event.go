// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// Event is something that happened.
type Event struct {
	Time time.Time `json:"time"`
	// Kind is "health", "drain", "route", "program" or "flows".
	Kind string `json:"kind"`
	// Object is for example "web 10.0.0.21:80".
	Object string `json:"object"`
	// Reason describes the event and its cause.
	Reason string `json:"reason"`
}

// maxEvents is how many events are kept.
const maxEvents = 100

// Recorder writes events to a log, a structured line for each, and keeps the latest
// for the status page. The agent, its announcer and its data plane record changes of
// health, drains, routes and programs. Its methods may be called from several
// goroutines.
type Recorder struct {
	log *slog.Logger

	mu     sync.Mutex
	latest []Event // the last one is the latest
}

// NewRecorder returns a Recorder. The rate of its log lines is limited, so that a network
// outage doesn't fill a disk.
func NewRecorder(log *slog.Logger) *Recorder {
	return &Recorder{log: slog.New(limited(log.Handler()))}
}

// Latest returns the events, the latest first.
func (r *Recorder) Latest() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := slices.Clone(r.latest)
	slices.Reverse(events)
	return events
}

// Add keeps an event, and drops the oldest one if there are too many.
func (r *Recorder) Add(event Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.latest) == maxEvents {
		r.latest = slices.Delete(r.latest, 0, 1)
	}
	r.latest = append(r.latest, event)
}

func (r *Recorder) remember(kind, object, reason string) {
	r.Add(Event{Time: time.Now(), Kind: kind, Object: object, Reason: reason})
}

// ProgramReplaced records that the data plane's program was replaced.
func (r *Recorder) ProgramReplaced(reason string) {
	r.log.Info("program replaced", slog.String("reason", reason))
	r.remember("program", "data plane", "replaced: "+reason)
}

// FlowsUnrecorded records that a service has more new flows than are recorded
// (docs/design/tracking.md).
func (r *Recorder) FlowsUnrecorded(vip lb.VIP) {
	r.log.Warn("too many new flows to record", slog.String("vip", vip.String()))
	r.remember("flows", vip.String(), "too many new flows to record")
}

// RouteAnnounced records that a prefix is announced, or no longer leaving.
func (r *Recorder) RouteAnnounced(prefix netip.Prefix, reason string) {
	r.log.Info("route announced", slog.String("prefix", prefix.String()), slog.String("reason", reason))
	r.remember("route", prefix.String(), "announced: "+reason)
}

// RouteLeaving records that the route carries GRACEFUL_SHUTDOWN.
func (r *Recorder) RouteLeaving(prefix netip.Prefix, reason string) {
	r.log.Info("route leaving", slog.String("prefix", prefix.String()), slog.String("reason", reason))
	r.remember("route", prefix.String(), "leaving: "+reason)
}

// RouteWithdrawn records that a prefix is withdrawn.
func (r *Recorder) RouteWithdrawn(prefix netip.Prefix, reason string) {
	r.log.Warn("route withdrawn", slog.String("prefix", prefix.String()), slog.String("reason", reason))
	r.remember("route", prefix.String(), "withdrawn: "+reason)
}

// RouteHookFailed records that the program of routes.hook fails for a prefix.
func (r *Recorder) RouteHookFailed(prefix netip.Prefix, reason string) {
	r.log.Warn("route hook fails", slog.String("prefix", prefix.String()), slog.String("reason", reason))
	r.remember("route", prefix.String(), "hook fails: "+reason)
}

// RouteHookRecovered records that the program of routes.hook succeeds again for a prefix.
func (r *Recorder) RouteHookRecovered(prefix netip.Prefix) {
	r.log.Info("route hook succeeds again", slog.String("prefix", prefix.String()))
	r.remember("route", prefix.String(), "hook succeeds again")
}

// Follow records changes of health and drains in the watched store until ctx ends.
// Backends that are healthy in the beginning are not events.
func (r *Recorder) Follow(ctx context.Context, watch func() (store.Snapshot, <-chan struct{})) {
	var before store.Snapshot
	for {
		after, changed := watch()
		r.changes(before, after)
		before = after
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// changes records the differences between two snapshots.
func (r *Recorder) changes(before, after store.Snapshot) {
	for _, d := range before.Drains {
		if _, still := after.Draining(d.Target); !still {
			r.undrained(d.Target)
		}
	}
	for _, d := range after.Drains {
		if _, already := before.Draining(d.Target); !already {
			r.drained(d.Target)
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
			r.judged(e, b.ID(), was.Health[b.ID()])
		}
		r.panicked(was.Panic, e)
	}
}

// judged records a verdict on a backend that differs from the one before.
func (r *Recorder) judged(e store.Entry, id lb.BackendID, was health.State) {
	state := e.Health[id]
	if !state.Known || e.Configured.Health == nil {
		return
	}
	dead := was.Checked && !was.Healthy // without a verdict it counts as alive
	service, backend := slog.String("service", e.Configured.Name), slog.String("backend", id.String())
	object := e.Configured.Name + " " + id.String()
	switch {
	case !state.Healthy && (!dead || !was.Known):
		reason := cmp.Or(state.Reason, "its checks failed") // the last one may have succeeded since
		r.log.Warn("backend unhealthy", service, backend, slog.String("reason", reason))
		r.remember("health", object, "unhealthy: "+reason)
	case state.Healthy && dead && was.Known:
		after := state.Since.Sub(was.Since).Round(time.Millisecond)
		r.log.Info("backend healthy", service, backend, slog.String("reason", fmt.Sprintf("its checks succeed again, after %s", after)))
		r.remember("health", object, fmt.Sprintf("healthy after %s", after))
	case state.Healthy && dead:
		r.log.Info("backend healthy", service, backend, slog.String("reason", "its first check succeeded"))
		r.remember("health", object, "healthy: its first check succeeded")
	}
}

// panicked records that a service begins or ends to ignore health.
func (r *Recorder) panicked(was bool, e store.Entry) {
	if was == e.Panic {
		return
	}
	reason := fmt.Sprintf("%d of %d backends are healthy", e.Healthy, len(e.Configured.Backends))
	service, why := slog.String("service", e.Configured.Name), slog.String("reason", reason)
	if e.Panic {
		r.log.Warn("service in panic", service, why)
		r.remember("health", e.Configured.Name, "in panic, health is ignored: "+reason)
		return
	}
	r.log.Info("service out of panic", service, why)
	r.remember("health", e.Configured.Name, "out of panic: "+reason)
}

// operator is the reason of drains.
const operator = "an operator's command"

func (r *Recorder) drained(target store.Target) {
	service, reason := slog.String("service", target.Service), slog.String("reason", operator)
	switch {
	case target == store.Target{}:
		r.log.Info("node draining", slog.String("reason", "an operator's command, or SIGTERM"))
	case target.Backend.IsValid():
		r.log.Info("backend drained", service, slog.String("backend", target.Backend.String()), reason)
	default:
		r.log.Info("service drained", service, reason)
	}
	r.remember("drain", target.String(), "drained")
}

func (r *Recorder) undrained(target store.Target) {
	service, reason := slog.String("service", target.Service), slog.String("reason", operator)
	switch {
	case target == store.Target{}:
		r.log.Info("node no longer draining", reason)
	case target.Backend.IsValid():
		r.log.Info("backend undrained", service, slog.String("backend", target.Backend.String()), reason)
	default:
		r.log.Info("service undrained", service, reason)
	}
	r.remember("drain", target.String(), "undrained")
}

// Limits of a limited handler: so many records at once, and then so many a
// second.
const (
	burst   = 200
	aSecond = 20
)

// limited returns a handler that passes at most 200 records at once and 20 a
// second after that. How many it suppressed it logs a second after the first of
// them.
func limited(to slog.Handler) slog.Handler {
	return &handler{Handler: to, limit: &limiter{to: to, rate: rate.NewLimiter(aSecond, burst)}}
}

// handler is one logger's handler; loggers made from one another share a limiter.
type handler struct {
	slog.Handler
	limit *limiter
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.limit.allow() {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.limit}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.limit}
}

type limiter struct {
	to   slog.Handler
	rate *rate.Limiter

	mu sync.Mutex
	// suppressed counts the records that the next summary is about.
	suppressed int
}

func (l *limiter) allow() bool {
	if l.rate.Allow() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.suppressed == 0 {
		time.AfterFunc(time.Second, l.summarise)
	}
	l.suppressed++
	return false
}

func (l *limiter) summarise() {
	l.mu.Lock()
	count := l.suppressed
	l.suppressed = 0
	l.mu.Unlock()
	slog.New(l.to).Warn("events suppressed", slog.Int("count", count))
}
