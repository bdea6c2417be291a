// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
)

// Log is the text of a log, written and read by several goroutines.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// Take returns the text since the last call.
func (l *Log) Take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// Logger writes lines to the log, without their time and attributes with these keys.
func (l *Log) Logger(without ...string) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || slices.Contains(without, a.Key) {
			return slog.Attr{}
		}
		return a
	}}))
}

// Record is a list of calls or events, added by several goroutines.
type Record struct {
	mu    sync.Mutex
	lines []string
}

// Add adds a line.
func (r *Record) Add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// Lines returns the lines since the last call of Take.
func (r *Record) Lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// Take returns the lines since the last call of Take.
func (r *Record) Take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

// Run runs parts until stop is called or the test ends, and waits for their end. A part that returns an error fails
// the test.
func Run(t testing.TB, parts ...func(context.Context) error) (stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() {
			if err := part(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// Part is a part for Run that can't fail.
func Part(run func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}
