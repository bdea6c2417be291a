// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/kubectl"
	"fairlead.io/fairlead/internal/version"
)

// pluginName is the name by which kubectl finds its plugin "fairlead".
const pluginName = "kubectl-fairlead"

// pluginCommands are the commands that the plugin runs on nodes.
var pluginCommands = []string{"backends", "drain", "drains", "flows", "routes", "services", "status", "trace", "undrain", "version"}

// newPluginCommand returns the command "kubectl fairlead".
func newPluginCommand(e env) *cobra.Command {
	client := kubectl.Client{Stdin: e.stdin, Stderr: e.stderr}
	var nodes []string
	cmd := &cobra.Command{
		Use:   pluginName + " [flags] COMMAND [ARGUMENT]...",
		Short: "Run a command of fairlead on the balancer nodes of a Kubernetes cluster",
		Long: `Run a command of fairlead on the balancer nodes of a Kubernetes cluster: kubectl runs
it in the pods of all agents, or on the nodes that --node names, and each node's
output is printed below the node's name, or without it if --node names one node.
Errors are printed for each node, and then the exit status is 1.

The commands are ` + strings.Join(pluginCommands, ", ") + `.
All that follows the command is given to it, as in "fairlead COMMAND --help".`,
		Example: `  kubectl fairlead status
  kubectl fairlead --node n1 drain node
  kubectl fairlead --node n1 services -o json`,
		Version:     version.String(),
		Args:        cobra.MinimumNArgs(1),
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fairlead"},
	}
	cmd.SetOut(e.stdout)
	cmd.SetErr(e.stderr)
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringVarP(&client.Namespace, "namespace", "n", kubectl.DefaultNamespace, "namespace of the agents")
	flags.StringVar(&client.Context, "context", "", "context of the kubeconfig (default: its current one)")
	flags.StringVar(&client.Kubeconfig, "kubeconfig", "", "path of the kubeconfig (default: where kubectl looks for it)")
	flags.StringSliceVar(&nodes, "node", nil, "run it on this node only (may be repeated)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !slices.Contains(pluginCommands, args[0]):
			return cli.Usagef("unknown command %q: want %s", args[0], strings.Join(pluginCommands, ", "))
		case args[0] == "drain" && len(nodes) == 0 && slices.Contains(args, "node"):
			return cli.Usagef("drain node: name the nodes with --node before the command")
		case args[0] != "drain" && args[0] != "undrain": // which wait for routers
			client.Timeout = kubectl.Timeout
		}
		return runOnNodes(cmd.Context(), e, &client, nodes, args)
	}
	return cmd
}

// runOnNodes runs a command on the named nodes, or on all, and prints each node's output.
func runOnNodes(ctx context.Context, e env, client *kubectl.Client, nodes, line []string) error {
	agents, err := client.Agents(ctx, nodes...)
	if err != nil {
		return err
	}
	for _, a := range kubectl.Run(ctx, client, agents, line...) {
		switch output := string(a.Output); {
		case a.Err != nil:
			fmt.Fprintf(e.stderr, "%s: %s\n", a.Node, cli.Printable(a.Err.Error()))
			err = cli.ExitStatus(1)
		case len(nodes) == 1:
			fmt.Fprint(e.stdout, cli.Printable(output))
		default:
			fmt.Fprintf(e.stdout, "%s:\n%s\n", a.Node, cli.Printable(output))
		}
	}
	return err
}
