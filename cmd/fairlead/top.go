// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
)

// topOptions are the flags of "top".
type topOptions struct {
	reader
	interval time.Duration
	count    int
	rows     int
}

// minInterval is how often an agent's rates change.
const minInterval = time.Second

func newTopCommand(e env) *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live rates: the busiest services and backends, and drops by reason",
		Long: `Show the rates of the last second, the highest first, until q or Ctrl-C is
pressed. If the output is not a terminal, the screens are written one after the
other.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.DurationVar(&o.interval, "interval", minInterval, "time between two screens")
	flags.IntVar(&o.count, "count", 0, "end after this number of screens (default: never)")
	flags.IntVar(&o.rows, "limit", 0, "maximum number of services and backends (default: what fits the screen, or 20)")
	o.register(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.interval < minInterval {
			return fmt.Errorf("--interval %s: want at least %s", o.interval, minInterval)
		}
		if o.count < 0 || o.rows < 0 {
			return fmt.Errorf("--count %d, --limit %d: want at least 0", o.count, o.rows)
		}
		return o.run(cmd.Context(), e)
	}
	return cmd
}

// run shows screens until the count is reached, a key ends it or ctx does.
func (o topOptions) run(ctx context.Context, e env) (err error) {
	var s *screen
	wait := waitForTick
	if !o.output.json {
		s = openScreen(e)
	}
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
		wait = s.wait
	}
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	agent := control.Dial(o.socket)
	for shown := 1; ; shown++ {
		text, err := o.text(ctx, agent, s)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err != nil:
			return err
		case s != nil:
			err = s.show(text)
		case shown > 1 && !o.output.json:
			_, err = io.WriteString(e.stdout, "\n"+text)
		default:
			_, err = io.WriteString(e.stdout, text)
		}
		if err != nil || shown == o.count || wait(ctx, tick.C) {
			return err
		}
	}
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

const (
	// defaultRows is how many services and backends are listed where there is no
	// screen.
	defaultRows = 20
	// headings is how many lines a screen has in addition to services, backends and exits.
	headings = 8
)

// text is one screen, or without one what is written; JSON is one object a line.
func (o topOptions) text(ctx context.Context, agent *control.Client, s *screen) (string, error) {
	rows := cmp.Or(o.rows, defaultRows)
	if s != nil && o.rows == 0 {
		// Thirds for services, backends and exits.
		_, height := s.size()
		rows = max((height-headings)/3, 1)
	}
	answer, err := agent.Top(ctx, rows)
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	if !o.output.json {
		err := printAnswer(&text, o.output, answer, observe.FormatTop)
		return text.String(), err
	}
	if err := json.Compact(&text, answer); err != nil {
		return "", fmt.Errorf("the agent's answer: %w", err)
	}
	return text.String() + "\n", nil
}
