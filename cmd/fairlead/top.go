// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

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
		Long: `Show the rates of the last second, the highest first, again and again until q or
Ctrl-C is pressed. Where the output is no terminal the screens are written one
after the other.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.DurationVar(&o.interval, "interval", minInterval, "time between two screens")
	flags.IntVar(&o.count, "count", 0, "end after so many screens (default: never)")
	flags.IntVar(&o.rows, "limit", 0, "how many services and backends to show (default: what fits the screen, or 20)")
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
	show := o.lines(e)
	if screen := openScreen(e); screen != nil && o.output != outputJSON {
		defer func() { err = errors.Join(err, screen.close()) }()
		var quit context.CancelFunc
		ctx, quit = context.WithCancel(ctx)
		defer quit()
		screen.quitOnKey(ctx, quit)
		show = o.screens(screen)
	}
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	agent := observe.Dial(o.socket)
	for shown := 1; ; shown++ {
		err := show(ctx, agent)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil || shown == o.count {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// defaultRows is how many services and backends are listed where there is no
// screen.
const defaultRows = 20

// lines returns what writes one screen after the other; JSON is one object a
// line.
func (o topOptions) lines(e env) func(context.Context, *observe.Client) error {
	first := true
	rows := o.rows
	if rows == 0 {
		rows = defaultRows
	}
	return func(ctx context.Context, agent *observe.Client) error {
		answer, err := agent.Top(ctx, rows)
		if err != nil {
			return err
		}
		if o.output == outputJSON {
			var line bytes.Buffer
			if err := json.Compact(&line, answer); err != nil {
				return fmt.Errorf("the agent's answer: %w", err)
			}
			line.WriteByte('\n')
			_, err := line.WriteTo(e.stdout)
			return err
		}
		if !first {
			fmt.Fprintln(e.stdout)
		}
		first = false
		return printAnswer(e.stdout, o.output, answer, observe.WriteTop)
	}
}

// headings is how many lines a screen has beside services, backends and exits.
const headings = 8

// screens returns what replaces the screen's content.
func (o topOptions) screens(s *screen) func(context.Context, *observe.Client) error {
	return func(ctx context.Context, agent *observe.Client) error {
		rows := o.rows
		if rows == 0 {
			// Thirds for services, backends and exits.
			_, height := s.size()
			rows = max((height-headings)/3, 1)
		}
		answer, err := agent.Top(ctx, rows)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := printAnswer(&text, outputTable, answer, observe.WriteTop); err != nil {
			return err
		}
		return s.show(text.String())
	}
}
