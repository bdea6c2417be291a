// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"time"

	"fairlead.io/fairlead/cmd/internal/cli"
)

// watch shows a text repeatedly: tables on a screen of the terminal, otherwise one after
// the other.
type watch struct {
	interval time.Duration
	count    int // how often; 0: until it is ended
	// changes says that a text is written only if it differs from the last one.
	changes bool
	output  cli.Output
}

// run shows texts until the count is reached, a key ends it or ctx does. The text gets the
// screen, nil if there is none.
func (w watch) run(ctx context.Context, e env, text func(context.Context, *screen) (string, error)) (err error) {
	var s *screen
	wait := waitForTick
	if w.output.Table() {
		s = openScreen(e)
	}
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
		wait = s.wait
	}
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	last := ""
	for shown := 1; ; shown++ {
		next, err := text(ctx, s)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err != nil:
			return err
		case s != nil:
			err = s.show(next)
		case w.changes && next == last:
		default:
			_, err = io.WriteString(e.stdout, w.separator(last)+next)
		}
		last = next
		if err != nil || shown == w.count || wait(ctx, tick.C) {
			return err
		}
	}
}

// separator stands between a text and the next one.
func (w watch) separator(last string) string {
	switch {
	case last == "" || w.output.JSON():
		return ""
	case w.output.YAML():
		return "---\n"
	}
	return "\n"
}

// waitForTick waits for the next tick, and reports whether ctx has ended before.
func waitForTick(ctx context.Context, tick <-chan time.Time) (quit bool) {
	select {
	case <-tick:
		return false
	case <-ctx.Done():
		return true
	}
}
