// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/controller"
)

func newControllerCommand(e env) *cobra.Command {
	o := controller.Options{DefaultClass: controller.DefaultClassNever}
	var log logFlags
	var kubeconfig, nodesKubeconfig string
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Assign addresses and nodes to the Services of a Kubernetes cluster",
		Long: `Assign addresses of AddressPools, and nodes in LoadBalancerGroups, to the Services
and LoadBalancers of a Kubernetes cluster. The agents serve them, also while no
controller runs.

Several controllers may run: a Lease elects the leader, and another one takes over
when it ends. All assignments are kept in the statuses of objects.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's service account)")
	flags.StringVar(&nodesKubeconfig, "nodes-kubeconfig", "", "kubeconfig file for the cluster of the nodes and agents, if that is another one (serves no Services)")
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the controller's Lease and of the agents' pods (environment: POD_NAMESPACE)")
	flags.Var(&o.DefaultClass, "default-class", "serve Services without a loadBalancerClass too; auto: unless another controller does")
	flags.BoolVar(&o.LeaderElect, "leader-elect", true, "work only while holding the Lease; if false, no other controller may run")
	flags.StringVar(&o.HashSeedSecret, "hash-seed-secret", "", "Secret in which the controller puts a random hash seed for the agents, if it has none")
	flags.DurationVar(&o.AgentGrace, "agent-grace", time.Minute, "how long an agent may be absent before a spare node replaces its node")
	flags.StringVar(&o.MetricsAddress, "metrics-address", ":9573", `address of /metrics; "" disables it`)
	flags.BoolVar(&o.MetricsSecure, "metrics-secure", false, "serve /metrics over TLS, to clients with a token that may get it")
	flags.StringVar(&o.HealthAddress, "health-address", ":9574", `address of /healthz and /readyz; "" disables them`)
	log.register(cmd)
	cli.Complete(cmd, "kubeconfig", completeFiles)
	cli.Complete(cmd, "nodes-kubeconfig", completeFiles)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Namespace == "" {
			return cli.Usagef("--namespace: none, and no POD_NAMESPACE in the environment")
		}
		o.Log = log.logger(e.stderr)
		return controller.RunWithKubeconfig(cmd.Context(), kubeconfig, nodesKubeconfig, o)
	}
	return cmd
}
