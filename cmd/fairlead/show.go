// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
)

// showCommand makes a command that prints an agent's answer: as it is in JSON, or as
// a table.
func showCommand[T any](
	e env, r *reader, cmd *cobra.Command, request func(*control.Client, context.Context) ([]byte, error), table func(T) string,
) *cobra.Command {
	repeat := false
	r.register(cmd)
	cmd.Flags().BoolVarP(&repeat, "watch", "w", false, "show it again whenever it changes, until q or Ctrl-C is pressed")
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		agent := control.Dial(r.socket)
		text := func(ctx context.Context, _ *screen) (string, error) {
			answer, err := request(agent, ctx)
			if err != nil {
				return "", err
			}
			return formatAnswer(r.output, answer, repeat, table)
		}
		if repeat {
			return watch{interval: minInterval, changes: true, output: r.output}.run(cmd.Context(), e, text)
		}
		shown, err := text(cmd.Context(), nil)
		if err != nil {
			return err
		}
		_, err = io.WriteString(e.stdout, shown)
		return err
	}
	return cmd
}

func newStatusCommand(e env) *cobra.Command {
	return showCommand(e, &reader{}, &cobra.Command{Use: "status", Short: "Show the agent: configuration, interfaces, counters"},
		(*control.Client).Status, func(s observe.Status) string { return observe.FormatStatus(s, time.Now()) })
}

func newServicesCommand(e env) *cobra.Command {
	return showCommand(e, &reader{}, &cobra.Command{Use: "services", Short: "Show the services: state, backends and traffic"},
		(*control.Client).Services, observe.FormatServices)
}

func newBackendsCommand(e env) *cobra.Command {
	service := ""
	var r reader
	return showCommand(e, &r, &cobra.Command{
		Use: "backends [SERVICE]", Short: "Show the backends of one service or of all", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: completeNames(&r.socket, serviceNames),
		PreRun:            func(_ *cobra.Command, args []string) { service = strings.Join(args, "") },
	}, func(agent *control.Client, ctx context.Context) ([]byte, error) { return agent.Backends(ctx, service) }, observe.FormatBackends)
}

func newRoutesCommand(e env) *cobra.Command {
	return showCommand(e, &reader{}, &cobra.Command{
		Use: "routes", Short: "Show announced prefixes and BGP peers, with reasons",
		Long: `Show prefixes with their services and the peers that have them, or the reason why
they are not announced, and the BGP and BFD sessions with the peers.`,
	}, (*control.Client).Routes, func(routes observe.Routes) string { return observe.FormatRoutes(routes, time.Now()) })
}

func newDrainsCommand(e env) *cobra.Command {
	return showCommand(e, &reader{}, &cobra.Command{Use: "drains", Short: "Show drains, and how many flows are left"},
		(*control.Client).Drains, observe.FormatDrains)
}

func newReloadCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make the agent read its configuration now",
		Long: `Make the agent read its configuration now, and return when all services have
been programmed or have failed, as "fairlead services" shows. A file with an error is
refused as a whole: its errors are printed, and nothing changes.`,
		Args: cobra.NoArgs,
	}
	registerSocket(cmd, &socket, control.DefaultSocket, "the agent's control socket")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return control.Dial(socket).Reload(cmd.Context())
	}
	return cmd
}
