// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
)

const drainLong = `Take a backend, a service or the node out of service. New flows stop at once;
existing flows stay until they end. A drain survives a restart of the agent; "fairlead
undrain" ends it.

A drained backend gets no new flows; existing ones are recorded when they send
their next packet. Clients of a drained service get what its "unavailable" says. A
drained node is not ready (/readyz), but balances packets that arrive. Routes are
withdrawn first, and announced again by "fairlead undrain".`

func newDrainCommand(e env) *cobra.Command {
	return newDrainer(e, "drain", "Take a backend, a service or the node out of service", drainLong, (*control.Client).Drain, true)
}

func newUndrainCommand(e env) *cobra.Command {
	return newDrainer(e, "undrain", "Return a backend, a service or the node to service",
		"Return a backend, a service or the node to service, at once.", (*control.Client).Undrain, false)
}

// newDrainer makes "drain", which waits, or "undrain", with their three kinds of targets.
func newDrainer(
	e env, use, short, long string, change func(*control.Client, context.Context, control.Target) error, waits bool,
) *cobra.Command {
	var r reader
	var waiting drainWait
	services, backends := []argumentNames{drainedServices}, []argumentNames{servicesWithDrains, drainedBackends}
	if waits {
		services, backends = []argumentNames{serviceNames}, []argumentNames{serviceNames, backendNames}
	}
	cmd := &cobra.Command{Use: use, Short: short, Long: long}
	for _, kind := range []struct {
		use, short string
		names      []argumentNames
		target     func([]string) (control.Target, error)
	}{
		{"backend SERVICE ADDRESS[:PORT]", "One backend of a service", backends, func(args []string) (control.Target, error) {
			return control.ParseBackend(args[0], args[1])
		}},
		{"service NAME", "A whole service", services, func(args []string) (control.Target, error) {
			return control.Target{Service: args[0]}, nil
		}},
		{"node", "This node", nil, func([]string) (control.Target, error) {
			return control.Target{}, nil
		}},
	} {
		sub := &cobra.Command{
			Use: kind.use, Short: kind.short, Long: kind.short + ". " + long, Args: cobra.ExactArgs(len(kind.names)),
			ValidArgsFunction: completeNames(&r.socket, kind.names...),
		}
		r.register(sub)
		if waits {
			waiting.register(sub.Flags())
		}
		sub.RunE = func(cmd *cobra.Command, args []string) error {
			target, err := kind.target(args)
			if err != nil {
				return cli.Usage(err)
			}
			client := control.Dial(r.socket)
			if err := change(client, cmd.Context(), target); err != nil || !waits {
				return err
			}
			return waiting.follow(cmd.Context(), client, target, e.stdout, r.output)
		}
		cmd.AddCommand(sub)
	}
	return cmd
}

// drainPoll is how often the progress of a drain is read.
const drainPoll = 500 * time.Millisecond

// drainWait says whether to wait for a drain, and how.
type drainWait struct {
	wait            bool
	timeout, settle time.Duration
}

func (w *drainWait) register(flags *pflag.FlagSet) {
	flags.BoolVar(&w.wait, "wait", false, "return when no recorded flow is left; flows that were idle since the drain are not known")
	flags.DurationVar(&w.timeout, "timeout", 5*time.Minute, "with --wait: fail after this time")
	flags.DurationVar(&w.settle, "settle", 3*time.Second, "with --wait: minimum time after the drain in which flows may appear")
}

// follow shows how far the drain of a target has come; with --wait until it is
// done, or the time is up.
func (w *drainWait) follow(ctx context.Context, client *control.Client, target control.Target, out io.Writer, o cli.Output) error {
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
		} else if over || o.Table() && text != shown {
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
		if d.Target == (control.Target{}) {
			left = d.PacketsPerSecond > 0
		}
		return left || now.Sub(d.Since) < w.settle
	})
}

// drainsOf asks for the drains that a target stands for.
func drainsOf(ctx context.Context, client *control.Client, target control.Target) ([]observe.Drain, error) {
	answer, err := client.Drains(ctx)
	if err != nil {
		return nil, err
	}
	var drains []observe.Drain
	if err := json.Unmarshal(answer, &drains); err != nil {
		return nil, fmt.Errorf("the agent's answer: %w", err)
	}
	return slices.DeleteFunc(drains, func(d observe.Drain) bool { return !target.Covers(d.Target) }), nil
}

func drainText(drains []observe.Drain, o cli.Output) (string, error) {
	var text strings.Builder
	if !o.Table() {
		err := o.Print(&text, drains)
		return text.String(), err
	}
	for _, d := range drains {
		fmt.Fprintln(&text, d.Progress())
	}
	return text.String(), nil
}
