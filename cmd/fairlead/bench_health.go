// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/bench/health"
)

// healthServers is the hidden command that runs the servers of bench health.
const healthServers = "health-servers"

func newBenchHealthCommand(e env) *cobra.Command {
	var o benchOptions
	cfg := health.Config{Commit: commit(), Progress: benchProgress(e)}
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Measure what health checks cost",
		Long: `Measure the processor time of health checks: thousands of addresses of the
loopback interface are probed each second, by TCP and by HTTP, while another
process answers.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	o.register(flags)
	flags.IntVar(&cfg.Backends, "backends", 5000, "backends that are probed, each once in a second")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		executable, err := os.Executable()
		if err != nil {
			return err
		}
		cfg.Quick, cfg.Servers = o.quick, []string{executable, "bench", healthServers}
		report, err := health.Run(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		return o.print(e, report)
	}
	return cmd
}

// newBenchHealthServersCommand answers probes until its standard input ends.
func newBenchHealthServersCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:    healthServers,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			go func() {
				// However it ends, nobody needs the servers any more.
				_, _ = io.Copy(io.Discard, os.Stdin)
				stop()
			}()
			if err := health.Serve(ctx, e.stdout); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		},
	}
}
