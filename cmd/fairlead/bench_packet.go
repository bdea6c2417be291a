// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/bench/packet"
)

func newBenchPacketCommand(e env) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "packet",
		Short: "Measure what a packet costs inside the program",
		Long: `Measure how long the balancer's program takes for one packet, without any
network: for one flow up to a million, for one service and for many, in each
forwarding mode, beside the same program with every flow tracked and a bare
reflector.`,
		Args: cobra.NoArgs,
	}
	o.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report, err := packet.Run(cmd.Context(), packet.Config{Commit: commit(), Quick: o.quick, Progress: benchProgress(e)})
		if err != nil {
			return err
		}
		return o.print(e, report)
	}
	return cmd
}
