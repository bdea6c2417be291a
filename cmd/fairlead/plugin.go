// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/frame"
	"fairlead.io/fairlead/internal/kubectl"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/version"
)

// pluginName is the name by which kubectl finds its plugin "fairlead".
const pluginName = "kubectl-fairlead"

// plugin has the flags of the plugin's commands.
type plugin struct {
	client kubectl.Client
	nodes  []string
	output cli.Output
}

// newPluginCommand returns the command "kubectl fairlead".
func newPluginCommand(e env) *cobra.Command {
	root := &cobra.Command{
		Use:   pluginName,
		Short: "Show and drain the balancer nodes of a Kubernetes cluster",
		Long: `Show and drain the balancer nodes of a Kubernetes cluster: kubectl runs the command of
the same name in the pods of all agents, and one table is made of their answers.
JSON and YAML are a list with the answer of each node. If a node doesn't answer,
the output says why, and the exit status is 1.`,
		Version:     version.String(),
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fairlead"},
	}
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.CompletionOptions.DisableDefaultCmd = true // kubectl completes plugins in another way
	p := &plugin{client: kubectl.Client{Stdin: e.stdin, Stderr: e.stderr, Timeout: kubectl.Timeout}}
	flags := root.PersistentFlags()
	flags.StringVarP(&p.client.Namespace, "namespace", "n", kubectl.DefaultNamespace, "namespace of the agents")
	flags.StringVar(&p.client.Context, "context", "", "context of the kubeconfig (default: its current one)")
	flags.StringVar(&p.client.Kubeconfig, "kubeconfig", "", "path of the kubeconfig (default: where kubectl looks for it)")
	root.AddCommand(
		newPluginBackends(e, p),
		newPluginDrain(e, p),
		newPluginDrains(e, p),
		newPluginFlows(e, p),
		newPluginRoutes(e, p),
		newPluginServices(e, p),
		newPluginStatus(e, p),
		newPluginTrace(e, p),
		newPluginUndrain(p),
	)
	return root
}

func newPluginStatus(e env, p *plugin) *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show the agents: version, data plane, counts, and what is wrong"}
	return showNodes(e, p, cmd, nil, nil, func(nodes []observe.Node[observe.Status]) string {
		return observe.FormatClusterStatus(nodes, time.Now())
	})
}

func newPluginServices(e env, p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use: "services", Short: "Show the services: nodes, state, backends and traffic",
		Long: `Show the services with the sums of their traffic. NODES are those that have programmed
the service, of those that are to; STATUS is that of most nodes, and then that of
nodes which differ.`,
	}
	return showNodes(e, p, cmd, nil, nil, observe.FormatClusterServices)
}

func newPluginBackends(e env, p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use: "backends [SERVICE]", Short: "Show the backends of one service or of all, with the nodes that differ", Args: cobra.MaximumNArgs(1),
		Long: `Show the backends of one service or of all, with the sums of their traffic. NODES are
those that send new flows to the backend, of those that have it; HEALTH and
STATUS are those of most nodes, and then those of nodes which differ.`,
	}
	return showNodes(e, p, cmd, nil, func(ctx context.Context, agents []kubectl.Agent, args []string) ([]kubectl.Agent, error) {
		return p.withService(ctx, agents, strings.Join(args, ""), 1)
	}, observe.FormatClusterBackends)
}

func newPluginRoutes(e env, p *plugin) *cobra.Command {
	cmd := &cobra.Command{Use: "routes", Short: "Show which nodes announce prefixes, or why they don't, and the nodes' BGP peers"}
	return showNodes(e, p, cmd, nil, nil, func(nodes []observe.Node[observe.Routes]) string {
		return observe.FormatClusterRoutes(nodes, time.Now())
	})
}

func newPluginFlows(e env, p *plugin) *cobra.Command {
	var o flowOptions
	cmd := &cobra.Command{
		Use:     "flows",
		Short:   "Show recorded flows of each node: those that a change of backends might move",
		Example: "  kubectl fairlead flows --service default/web/80 --client 192.0.2.0/24",
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
	}
	return showNodes(e, p, cmd, o.flags(), func(ctx context.Context, agents []kubectl.Agent, _ []string) ([]kubectl.Agent, error) {
		return p.withService(ctx, agents, o.query.Service, 0)
	}, observe.FormatClusterFlows)
}

func newPluginTrace(e env, p *plugin) *cobra.Command {
	var o traceOptions
	title := ""
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Show what each node does with a packet, and why",
		Long: `Show what each node does with a packet, which flags describe, and why. Nodes that do the
same with it are shown together. Captures are traced by "fairlead trace" in the
pod of an agent.`,
		Example: "  kubectl fairlead trace --from 192.0.2.7:41000 --to 10.1.1.1:80",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmd.ValidateRequiredFlags(); err != nil {
				return err
			}
			packet, err := o.described()
			if err == nil {
				title = frame.Summary(packet)
			}
			return err
		},
	}
	cmd = showNodes(e, p, cmd, o.flags(), nil, func(nodes []observe.Node[[]observe.Trace]) string {
		return observe.FormatClusterTraces(title, nodes)
	})
	for _, required := range []string{"from", "to"} {
		_ = cmd.MarkFlagRequired(required) // fails only for a flag that isn't there
	}
	return cmd
}

func (p *plugin) registerNodes(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&p.nodes, "node", nil, "only this node (may be repeated; default: all)")
}

// showNodes makes a command that prints agents' responses to the command of the same name.
// The flags are passed on to it. It runs on the agents that are selected, or on all.
func showNodes[T any](
	e env, p *plugin, cmd *cobra.Command, flags *pflag.FlagSet,
	selected func(context.Context, []kubectl.Agent, []string) ([]kubectl.Agent, error), table func([]observe.Node[T]) string,
) *cobra.Command {
	cmd.Flags().AddFlagSet(flags)
	p.registerNodes(cmd)
	p.output.Register(cmd)
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		agents, err := p.client.Agents(cmd.Context(), p.nodes...)
		if err != nil {
			return err
		}
		if selected != nil {
			if agents, err = selected(cmd.Context(), agents, args); err != nil {
				return err
			}
		}
		return printNodes(cmd.Context(), e, &p.client, p.output, agents, commandLine([]string{cmd.Name()}, flags, args), table)
	}
	return cmd
}

// commandLine is a command of fairlead with the flags that were set, and arguments, which
// can't be read as flags.
func commandLine(words []string, flags *pflag.FlagSet, args []string) []string {
	line := append(slices.Clone(words), "--output=json")
	if flags != nil {
		flags.VisitAll(func(f *pflag.Flag) {
			if f.Changed {
				line = append(line, fmt.Sprintf("--%s=%s", f.Name, f.Value))
			}
		})
	}
	if len(args) > 0 {
		line = append(append(line, "--"), args...)
	}
	return line
}

// printNodes runs a command on agents, and prints their answers. The exit status is 1 if one
// is missing, which the output says.
func printNodes[T any](
	ctx context.Context, e env, client *kubectl.Client, o cli.Output, agents []kubectl.Agent, line []string, table func([]observe.Node[T]) string,
) error {
	var err error
	failed := false
	if o.Table() {
		nodes := kubectl.Query[T](ctx, client, agents, line...)
		failed = missing(nodes)
		_, err = io.WriteString(e.stdout, cli.Printable(table(nodes)))
	} else {
		nodes := kubectl.Query[json.RawMessage](ctx, client, agents, line...)
		failed = missing(nodes)
		err = o.Print(e.stdout, nodes)
	}
	if err == nil && failed {
		return cli.ExitStatus(1)
	}
	return err
}

// missing reports whether a node has no answer.
func missing[T any](nodes []observe.Node[T]) bool {
	return slices.ContainsFunc(nodes, func(n observe.Node[T]) bool { return n.Error != "" })
}

// withService selects the agents that have a service with at least so many backends; all if
// no service is named.
func (p *plugin) withService(ctx context.Context, agents []kubectl.Agent, name string, backends int) ([]kubectl.Agent, error) {
	if name == "" {
		return agents, nil
	}
	services := kubectl.Query[[]observe.Service](ctx, &p.client, agents, commandLine([]string{"services"}, nil, nil)...)
	agents = kubectl.Select(agents, services, func(s observe.Service) bool { return s.Name == name && s.Backends >= backends })
	if len(agents) == 0 {
		return nil, fmt.Errorf("service %q: on no node, or without backends", name)
	}
	return agents, nil
}
