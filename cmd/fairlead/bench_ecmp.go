// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/bench/ecmp"
	"fairlead.io/fairlead/internal/netlab"
)

const benchECMPLong = `Measure how an upstream router's equal-cost routes follow the balancers. In a lab
of four balancers and a real router, for each router without and with a route
reflector: are its tables right (table 6.2 of the dissertation); how soon do they
follow when balancers are drained, stopped and started at random; what is lost
when a node is lost, or an agent hangs, is killed, stopped or drained; does
throughput follow the number of balancers. Without --quick it takes some ten
minutes.`

func newBenchECMPCommand(e env) *cobra.Command {
	var o benchOptions
	var routers string
	var reflector bool
	cfg := ecmp.Config{
		Labs:     netlab.Labs{Dir: netlab.DefaultDir},
		Name:     fmt.Sprintf("ecmp-%d", os.Getpid()),
		Commit:   commit(),
		Progress: benchProgress(e),
	}
	cmd := &cobra.Command{
		Use: "ecmp", Short: "Measure how an upstream router's routes follow the balancers", Long: benchECMPLong,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	o.register(flags)
	flags.StringVar(&routers, "router", "", "frr, bird, gobgp or all (default: frr and bird; frr with --quick)")
	flags.BoolVar(&reflector, "reflector", false, "only with a route reflector, or with =false only without (default: both; without with --quick)")
	flags.IntVar(&cfg.Changes, "changes", 300, "changes of the number of balancers for each router; 20 with --quick")
	flags.DurationVar(&cfg.Duration, "duration", 0, "change the number of balancers for so long instead, for example 20h")
	flags.DurationVar(&cfg.Interval, "interval", 0, "least time between two changes (default: as soon as the table is right)")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "make the changes of an earlier run again (default: others)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		cfg.Quick = o.quick
		if o.quick && !flags.Changed("changes") {
			cfg.Changes = 20
		}
		if !flags.Changed("seed") {
			cfg.Seed = rand.Uint64()
		}
		kinds, err := benchRouters(routers, o.quick)
		if err != nil {
			return err
		}
		reflectors := []bool{reflector}
		if !o.quick && !flags.Changed("reflector") {
			reflectors = []bool{false, true}
		}
		for _, with := range reflectors {
			for _, kind := range kinds {
				cfg.Settings = append(cfg.Settings, ecmp.Setting{Router: kind, Reflector: with})
			}
		}
		if cfg.Fairlead, err = os.Executable(); err != nil {
			return err
		}
		report, err := ecmp.Run(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		return o.print(e, report)
	}
	return cmd
}

// benchRouters reads --router.
func benchRouters(text string, quick bool) ([]netlab.RouterKind, error) {
	switch kind := netlab.RouterKind(text); {
	case text == "" && quick:
		return []netlab.RouterKind{netlab.FRR}, nil
	case text == "":
		return []netlab.RouterKind{netlab.FRR, netlab.BIRD}, nil
	case text == "all":
		return []netlab.RouterKind{netlab.FRR, netlab.BIRD, netlab.GoBGP}, nil
	case kind == netlab.FRR, kind == netlab.BIRD, kind == netlab.GoBGP:
		return []netlab.RouterKind{kind}, nil
	}
	return nil, fmt.Errorf("--router %q: want frr, bird, gobgp or all", text)
}
