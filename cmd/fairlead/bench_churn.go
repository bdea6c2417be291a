// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/bench/churn"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

func newBenchChurnCommand(e env) *cobra.Command {
	var o benchOptions
	cfg := churn.Config{
		Labs:     netlab.Labs{Dir: netlab.DefaultDir},
		Name:     fmt.Sprintf("churn-%d", os.Getpid()),
		Commit:   commit(),
		Progress: benchProgress(e),
	}
	cmd := &cobra.Command{
		Use:   "churn",
		Short: "Change backends at random under live connections and count what breaks",
		Long: `Change backends at random under live connections and count what breaks. In a lab
of three balancers one of them is lost while no backend changes; servers are added,
removed, drained and re-weighted; once more while servers are killed and started
again, which health checks notice; and once more while one of the balancers is
lost. Without --quick it takes some minutes.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	o.register(flags)
	flags.IntVar(&cfg.Connections, "connections", 3000, "TCP connections that are open all the time; 600 with --quick")
	flags.IntVar(&cfg.Changes, "changes", 1000, "changes of backends; 80 with --quick")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "make the changes of an earlier run again (default: others)")
	flags.TextVar(&cfg.Tracking, "tracking", lb.TrackingMinimal, "which flows the balancers remember: minimal or full")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		cfg.Quick = o.quick
		if o.quick && !flags.Changed("connections") {
			cfg.Connections = 600
		}
		if o.quick && !flags.Changed("changes") {
			cfg.Changes = 80
		}
		if !flags.Changed("seed") {
			cfg.Seed = rand.Uint64()
		}
		if cfg.Fairlead, err = os.Executable(); err != nil {
			return err
		}
		report, err := churn.Run(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		return o.print(e, report)
	}
	return cmd
}
