// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.io/fairlead/internal/observe"
)

// drainPoll is how often there is a look at how far a drain has come.
const drainPoll = 500 * time.Millisecond

func newDrainsCommand(e env) *cobra.Command {
	var r reader
	cmd := &cobra.Command{
		Use:   "drains",
		Short: "Show what is drained, and how many flows are left there",
		Args:  cobra.NoArgs,
	}
	r.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := observe.Dial(r.socket).Drains(cmd.Context())
		if err != nil {
			return err
		}
		return printAnswer(e.stdout, r.output, answer, observe.WriteDrains)
	}
	return cmd
}

// drainWait says whether to wait for a drain, and how.
type drainWait struct {
	wait            bool
	timeout, settle time.Duration
}

func (w *drainWait) register(flags *pflag.FlagSet) {
	flags.BoolVar(&w.wait, "wait", false, "return when no recorded flow is left; those that have been silent since are not known")
	flags.DurationVar(&w.timeout, "timeout", 5*time.Minute, "with --wait: fail after this time")
	flags.DurationVar(&w.settle, "settle", 3*time.Second, "with --wait: how long flows have, after the drain began, to be seen")
}

// follow shows how far the drain of a target has come; with --wait until it is
// done, or the time is up.
func (w *drainWait) follow(ctx context.Context, client *observe.Client, target observe.DrainTarget, out io.Writer, o output) error {
	began := time.Now()
	shown := ""
	for {
		drains, err := drainsOf(ctx, client, target)
		if err != nil {
			return err
		}
		late := time.Since(began) >= w.timeout
		over := !w.wait || w.done(drains, time.Now()) || late
		if text, err := drainText(drains, o); err != nil {
			return err
		} else if over || o == outputTable && text != shown {
			fmt.Fprint(out, text)
			shown = text
		}
		switch {
		case w.wait && late && !w.done(drains, time.Now()):
			return fmt.Errorf("%s: flows are left after %s", target, w.timeout)
		case over:
			return nil
		}
		select {
		case <-time.After(min(drainPoll, w.timeout-time.Since(began))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// done reports whether no flow is left. Right after a drain began none has been
// seen yet. Of a node it is packets that count: its flows go on elsewhere.
func (w *drainWait) done(drains []observe.Drain, now time.Time) bool {
	return !slices.ContainsFunc(drains, func(d observe.Drain) bool {
		left := d.Flows > 0
		if d.DrainTarget == (observe.DrainTarget{}) {
			left = d.PacketsPerSecond > 0
		}
		return left || now.Sub(d.Since) < w.settle
	})
}

// drainsOf asks for the drains that a target stands for.
func drainsOf(ctx context.Context, client *observe.Client, target observe.DrainTarget) ([]observe.Drain, error) {
	answer, err := client.Drains(ctx)
	if err != nil {
		return nil, err
	}
	var drains []observe.Drain
	if err := json.Unmarshal(answer, &drains); err != nil {
		return nil, fmt.Errorf("the agent's answer: %w", err)
	}
	return slices.DeleteFunc(drains, func(d observe.Drain) bool { return !target.Covers(d.DrainTarget) }), nil
}

func drainText(drains []observe.Drain, o output) (string, error) {
	if o == outputJSON {
		text, err := json.MarshalIndent(drains, "", "  ")
		return string(text) + "\n", err
	}
	var text bytes.Buffer
	for _, d := range drains {
		fmt.Fprintln(&text, d.Progress())
	}
	return text.String(), nil
}
