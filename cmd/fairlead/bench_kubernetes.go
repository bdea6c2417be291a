// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.io/fairlead/internal/bench/kubernetes"
	"fairlead.io/fairlead/internal/netlab"
)

func newBenchKubernetesCommand(e env) *cobra.Command {
	var o benchOptions
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	cfg := kubernetes.Config{
		Labs:     netlab.Labs{Dir: netlab.DefaultDir},
		Name:     fmt.Sprintf("kubernetes-%d", os.Getpid()),
		Commit:   commit(),
		Progress: benchProgress(e),
	}
	cmd := &cobra.Command{
		Use:   "kubernetes",
		Short: "Measure how a Kubernetes cluster is followed, and what that costs",
		Long: `Measure how a Kubernetes cluster is followed, and what that costs. Into a cluster of
its own, of which the API server and Fairlead's kinds are enough, it writes Services
with EndpointSlices, and Nodes; runs a controller and, on a veth pair, an agent; and
asks the agent's program, while EndpointSlices change, to which backend it would send
a packet. All that it writes is taken away again. Without --quick it takes some
minutes.

    go run ./test/cluster/up bin/fairlead bench kubernetes

starts such a cluster for it.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	o.register(flags)
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "how the API server is reached (default: as kubectl does)")
	flags.IntVar(&cfg.Services, "services", 2000, "Services, with ten endpoints each; 200 with --quick")
	flags.IntVar(&cfg.Changes, "changes", 1000, "changes of EndpointSlices; 100 with --quick")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		cfg.Quick = o.quick
		if o.quick && !flags.Changed("services") {
			cfg.Services = 200
		}
		if o.quick && !flags.Changed("changes") {
			cfg.Changes = 100
		}
		if cfg.Kubeconfig, err = rules.Load(); err != nil {
			return err
		}
		if cfg.Fairlead, err = os.Executable(); err != nil {
			return err
		}
		report, err := kubernetes.Run(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		return o.print(e, report)
	}
	return cmd
}
