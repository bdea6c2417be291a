// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/bench/churn"
	"fairlead.io/fairlead/internal/netlab"
)

// newBenchChurnCommand is "fairlead bench churn".
func newBenchChurnCommand(e env) *cobra.Command {
	b := churn.Bench{Labs: netlab.Labs{
		Dir:      netlab.DefaultDir,
		Progress: func(line string) { fmt.Fprintln(e.stderr, "churn:", line) },
	}}
	var o output
	cmd := &cobra.Command{
		Use:   "churn",
		Short: "Change backends at random under live connections and count what breaks",
		Long: `Change backends at random under live connections and count what breaks: in a lab
of three balancers servers are added, removed, drained and re-weighted, then
again while one of the balancers is lost as well.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	o.register(flags)
	flags.BoolVar(&b.Quick, "quick", false, "600 connections and 100 changes: less than a minute")
	flags.IntVar(&b.Connections, "connections", 3000, "TCP connections that live all the time")
	flags.IntVar(&b.Changes, "changes", 1000, "changes of backends")
	flags.Uint64Var(&b.Seed, "seed", 0, "draw the changes of an earlier run (default: new ones)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if b.Quick && !flags.Changed("connections") {
			b.Connections = 600
		}
		if b.Quick && !flags.Changed("changes") {
			b.Changes = 100
		}
		if !flags.Changed("seed") {
			b.Seed = rand.Uint64()
		}
		fairlead, err := os.Executable()
		if err != nil {
			return err
		}
		b.Fairlead, b.Name, b.Commit = fairlead, fmt.Sprintf("churn-%d", os.Getpid()), commit()
		report, err := b.Run(cmd.Context())
		if err != nil {
			return err
		}
		if o == outputJSON {
			return report.WriteJSON(e.stdout)
		}
		return report.WriteTable(e.stdout)
	}
	return cmd
}
