// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
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
	o.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.interval < minInterval {
			return cli.Usagef("--interval %s: want at least %s", o.interval, minInterval)
		}
		if o.count < 0 || o.rows < 0 {
			return cli.Usagef("--count %d, --limit %d: want at least 0", o.count, o.rows)
		}
		agent := control.Dial(o.socket)
		return watch{interval: o.interval, count: o.count, output: o.output}.run(cmd.Context(), e,
			func(ctx context.Context, s *screen) (string, error) { return o.text(ctx, agent, s) })
	}
	return cmd
}

const (
	// defaultRows is how many services and backends are listed where there is no
	// screen.
	defaultRows = 20
	// headings is how many lines a screen has in addition to services, backends and exits.
	headings = 8
)

// text returns one screen, or without one the output; JSON is one object a line.
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
	return formatAnswer(o.output, answer, true, observe.FormatTop)
}
