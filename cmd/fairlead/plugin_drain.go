// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/kubectl"
	"fairlead.io/fairlead/internal/observe"
)

func newPluginDrains(e env, p *plugin) *cobra.Command {
	cmd := &cobra.Command{Use: "drains", Short: "Show the drains of each node, and how many flows are left"}
	return showNodes(e, p, cmd, nil, nil, observe.FormatClusterDrains)
}

const (
	pluginDrainLong = `Take a backend or a service out of service on all nodes that have it, or a node: new
flows stop at once, and existing flows stay until they end. "kubectl fairlead undrain"
ends it. Nodes that get the service later aren't drained.`

	pluginUndrainLong = `Return a backend or a service to service on all nodes where it is drained, or a node.`
)

func newPluginDrain(e env, p *plugin) *cobra.Command {
	flags := pflag.NewFlagSet("drain", pflag.ContinueOnError)
	(&drainWait{}).register(flags) // the agents wait
	cmd := newPluginDrainer(p, "drain", "Take a backend, a service or a node out of service", pluginDrainLong, flags, p.affected,
		func(ctx context.Context, client *kubectl.Client, agents []kubectl.Agent, line []string) error {
			return printNodes(ctx, e, client, p.output, agents, line, observe.FormatClusterDrains)
		})
	for _, sub := range cmd.Commands() {
		p.output.Register(sub)
	}
	return cmd
}

func newPluginUndrain(p *plugin) *cobra.Command {
	return newPluginDrainer(p, "undrain", "Return a backend, a service or a node to service", pluginUndrainLong, nil, p.drained,
		func(ctx context.Context, client *kubectl.Client, agents []kubectl.Agent, line []string) error {
			var failed []error
			for _, n := range kubectl.Run(ctx, client, agents, line...) {
				if n.Error != "" {
					failed = append(failed, fmt.Errorf("%s: %s", n.Name, n.Error))
				}
			}
			return errors.Join(failed...)
		})
}

// newPluginDrainer makes "drain" or "undrain", with their three kinds of targets. It runs on
// the agents that are selected for a target.
func newPluginDrainer(
	p *plugin, use, short, long string, flags *pflag.FlagSet,
	selected func(context.Context, []kubectl.Agent, control.Target) ([]kubectl.Agent, error),
	run func(context.Context, *kubectl.Client, []kubectl.Agent, []string) error,
) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long}
	for _, kind := range []struct {
		use, short string
		target     func([]string) (control.Target, error)
	}{
		{"backend SERVICE ADDRESS[:PORT]", "One backend of a service", func(args []string) (control.Target, error) {
			return control.ParseBackend(args[0], args[1])
		}},
		{"service NAME", "A whole service", func(args []string) (control.Target, error) {
			return control.Target{Service: args[0]}, nil
		}},
		{"node NODE", "A node", func([]string) (control.Target, error) {
			return control.Target{}, nil
		}},
	} {
		sub := &cobra.Command{Use: kind.use, Short: kind.short, Long: kind.short + ".\n\n" + long, Args: cobra.ExactArgs(strings.Count(kind.use, " "))}
		sub.Flags().AddFlagSet(flags)
		ofNode := sub.Name() == "node"
		if !ofNode {
			p.registerNodes(sub)
		}
		sub.RunE = func(cmd *cobra.Command, args []string) error {
			target, err := kind.target(args)
			if err != nil {
				return cli.Usage(err)
			}
			nodes := p.nodes
			if ofNode {
				nodes, args = args, nil
			}
			agents, err := p.client.Agents(cmd.Context(), nodes...)
			if err != nil {
				return err
			}
			if !ofNode {
				if agents, err = selected(cmd.Context(), agents, target); err != nil {
					return err
				}
			}
			unlimited := p.client
			unlimited.Timeout = 0 // routers may take longer to follow than any other answer takes
			return run(cmd.Context(), &unlimited, agents, commandLine([]string{use, sub.Name()}, flags, args))
		}
		cmd.AddCommand(sub)
	}
	return cmd
}

// affected selects the agents that have a service, or a backend of it.
func (p *plugin) affected(ctx context.Context, agents []kubectl.Agent, target control.Target) ([]kubectl.Agent, error) {
	if !target.Backend.Addr().IsValid() {
		return p.withService(ctx, agents, target.Service, 0)
	}
	agents, err := p.withService(ctx, agents, target.Service, 1)
	if err != nil {
		return nil, err
	}
	backends := kubectl.Query[[]observe.Backend](ctx, &p.client, agents, commandLine([]string{"backends"}, nil, []string{target.Service})...)
	agents = kubectl.Select(agents, backends, func(b observe.Backend) bool {
		return target.Covers(control.Target{Service: b.Service, Backend: netip.AddrPortFrom(b.Address, b.Port)})
	})
	if len(agents) == 0 {
		return nil, fmt.Errorf("backend %s: on no node", target)
	}
	return agents, nil
}

// drained selects the agents on which a service, or a backend of it, is drained.
func (p *plugin) drained(ctx context.Context, agents []kubectl.Agent, target control.Target) ([]kubectl.Agent, error) {
	drains := kubectl.Query[[]observe.Drain](ctx, &p.client, agents, commandLine([]string{"drains"}, nil, nil)...)
	agents = kubectl.Select(agents, drains, func(d observe.Drain) bool { return target.Covers(d.Target) })
	if len(agents) == 0 {
		return nil, fmt.Errorf("%s: drained on no node", target)
	}
	return agents, nil
}
