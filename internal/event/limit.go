// SPDX-License-Identifier: Apache-2.0

// Package event tells what happened to a node: one structured line in the log
// for every change of health, drain, route and program, with the object's name and
// the reason.
//
// It stands beside observe, at the end of the story of DESIGN.md §1: observe
// shows what is, event what changed. Events are limited, so that a network that
// breaks down doesn't fill a disk.
package event

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Limits of a Limited handler: so many records at once, and then so many a
// second.
const (
	burst   = 200
	aSecond = 20
)

// Limited returns a handler that hands on at most 200 records at once and 20 a
// second after that (a token bucket). How many it kept back it says by a record
// of its own, "events suppressed", a second after the first of them.
func Limited(to slog.Handler) slog.Handler {
	return &handler{Handler: to, limit: &limiter{to: to, tokens: burst, filled: time.Now()}}
}

// handler is one logger's view of a limiter: they share the bucket.
type handler struct {
	slog.Handler
	limit *limiter
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.limit.take(time.Now()) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.limit}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.limit}
}

type limiter struct {
	to slog.Handler

	mu     sync.Mutex
	tokens float64
	filled time.Time // when tokens was right
	// suppressed counts the records that the next summary is about.
	suppressed int
}

// take reports whether a record may pass.
func (l *limiter) take(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens = min(burst, l.tokens+aSecond*now.Sub(l.filled).Seconds())
	l.filled = now
	if l.tokens >= 1 {
		l.tokens--
		return true
	}
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
