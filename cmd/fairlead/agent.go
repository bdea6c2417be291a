// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/balancer"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/source/node"
)

const defaultConfig = "/etc/fairlead/fairlead.yaml"

func newAgentCommand(e env) *cobra.Command {
	var o balancer.Options
	var balancerPods []string
	var log logFlags
	remove := false
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run a balancer node",
		Long: `Run a balancer node with its configuration file. The agent applies the file
whenever it changes; SIGHUP and "fairlead reload" apply it at once. SIGTERM
withdraws the node's routes and drains it: the agent ends when traffic has ceased,
or after node.drainTimeout; a second SIGTERM, or SIGINT, ends it at once. When the
agent has ended, also by SIGKILL, the kernel keeps balancing, and the next agent
takes over. Routers that support graceful restart keep routes that were not
withdrawn.

With apiServer in the file, services come from "fairlead apiserver". The last state is
saved, for an agent that starts while the API server can't be reached.

With --kubernetes services, peers and announcement policies come from the cluster,
and the file has only the node's own settings; it may be empty. The last state is
saved, too. SIGTERM then hands over to the node's next agent, unless the node leaves:
it is in no group any more, cordoned, deleted or shutting down. When the DaemonSet of
the agents has been deleted the node leaves too, and nothing is left in its kernel.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Config, "config", defaultConfig, "configuration file")
	flags.StringVar(&o.PinDir, "pin-dir", "", "folder in a BPF file system for the data plane (default: "+balancer.PinRoot+"/NODE)")
	flags.BoolVar(&remove, "remove", false, "remove what a stopped agent left in the kernel, and exit")
	flags.BoolVar(&o.RemoveOnExit, "remove-on-exit", false, "after SIGTERM leave nothing in the kernel: no agent will follow, as in a balancer pod")
	flags.BoolVar(&o.Kubernetes.On, "kubernetes", false, "serve what the Kubernetes cluster of this node configures")
	flags.StringVar(&o.Kubernetes.Kubeconfig, "kubeconfig", "", "kubeconfig file for the API server (default: the pod's service account)")
	flags.StringVar(&o.Kubernetes.ControlKubeconfig, "control-kubeconfig", "", "kubeconfig file for the cluster with LoadBalancers and other objects of Fairlead, if that is another one (serves no Services)")
	flags.StringVar(&o.Kubernetes.NodeName, "node-name", "", "name of this node's Node (default: $NODE_NAME, else the host's name)")
	flags.StringVar(&o.Kubernetes.Namespace, "namespace", "", "namespace with the Secrets of BGPPeers (default: the pod's)")
	flags.StringVar(&o.Kubernetes.DaemonSet, "daemonset", "", "the agents' DaemonSet: an agent that is terminated after its deletion leaves nothing on the node")
	flags.StringVar(&o.Kubernetes.HashSeedSecret, "hash-seed-secret", "", "Secret with the hash seed, in place of dataplane.hashSeed")
	flags.StringArrayVar(&balancerPods, "balancer-pods", nil, "lead VIPs to this node's balancer pods, pods with the annotation fairlead.io/vip-prefixes: NAMESPACE=PREFIX[,PREFIX]... may have them, for these prefixes (may be repeated)")
	flags.BoolVar(&o.MetricsSecure, "metrics-secure", false, "serve status page and metrics over TLS, to clients with a token that may get /metrics")
	flags.StringVar(&o.StateDir, "state-dir", "", "folder for the last known state (default: "+node.StateRoot+"/NODE)")
	log.register(cmd)
	registerSocket(cmd, &o.Socket, control.DefaultSocket, "the agent's control socket")
	cli.Complete(cmd, "config", completeFiles)
	cli.Complete(cmd, "kubeconfig", completeFiles)
	cli.Complete(cmd, "control-kubeconfig", completeFiles)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Log = log.logger(e.stderr)
		var err error
		if o.BalancerPods, err = balancer.ParseShares(balancerPods); err != nil {
			return cli.Usagef("--balancer-pods: %v", err)
		}
		switch {
		case len(balancerPods) > 0 && !o.Kubernetes.On:
			return cli.Usagef("--balancer-pods: only with --kubernetes")
		case o.Kubernetes.ControlKubeconfig != "" && !o.Kubernetes.On:
			return cli.Usagef("--control-kubeconfig: only with --kubernetes")
		case o.MetricsSecure && !o.Kubernetes.On:
			return cli.Usagef("--metrics-secure: only with --kubernetes")
		case o.RemoveOnExit && o.Kubernetes.On:
			return cli.Usagef("--remove-on-exit: not with --kubernetes, see --daemonset")
		}
		if remove {
			return printedConfigError(e, balancer.Remove(o))
		}
		return printedConfigError(e, balancer.Run(cmd.Context(), o))
	}
	return cmd
}

// printedConfigError prints all errors of a configuration file as they are: each
// begins with its place. Other errors are returned.
func printedConfigError(e env, err error) error {
	if wrong, ok := errors.AsType[config.Errors](err); ok {
		fmt.Fprintln(e.stderr, wrong)
		return cli.ExitStatus(1)
	}
	return err
}
