// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/bench/forward"
	"fairlead.io/fairlead/internal/netlab"
)

func newBenchForwardCommand(e env) *cobra.Command {
	var o benchOptions
	var cfg forward.Config
	cmd := &cobra.Command{
		Use:   "forward",
		Short: "Measure throughput through veth beside a reflector, iptables and nftables",
		Long: `Measure how many packets a second one processor brings through a veth pair, the
device under test and back, with packets that are made in the kernel. Compared
are a bare XDP reflector, Fairlead in each forwarding mode, iptables DNAT and
nftables DNAT, each in a network namespace of its own, and no device at all.
While it runs the size of the machine's connection table is raised.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	o.register(flags)
	flags.StringSliceVar(&cfg.Devices, "device", nil, "compare only these devices, for example reflector,l2dsr")
	flags.StringSliceVar(&cfg.Sizes, "frame", nil, "send only frames of these sizes in bytes, for example 64,imix")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg.Labs = netlab.Labs{Dir: netlab.DefaultDir}
		cfg.Commit, cfg.Quick, cfg.Progress = commit(), o.quick, benchProgress(e)
		report, err := forward.Run(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		return o.print(e, report)
	}
	return cmd
}
