// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/balancer"
	"fairlead.io/fairlead/internal/balancer/plane"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/host/preflight"
)

// preflightOptions are the flags of "preflight".
type preflightOptions struct {
	config     string
	interfaces []string
	output     cli.Output
}

func newPreflightCommand(e env) *cobra.Command {
	var o preflightOptions
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Show what this kernel and its interfaces support, and what to change",
		Long: `Show what this kernel and its interfaces support, what is missing for a balancer
and how to fix it. The interfaces are those of a configuration file, those of
--interface, or else all that are up. Nothing is changed: Fairlead's XDP program is
tested on packets in memory and unloaded, and no module is loaded. The exit status is
1 if an agent could not run.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", "", "check what this configuration file needs")
	flags.StringSliceVar(&o.interfaces, "interface", nil, "check this interface (may be repeated)")
	o.output.Register(cmd)
	cli.Complete(cmd, "config", completeFiles)
	cli.Complete(cmd, "interface", completeInterfaces)
	cmd.MarkFlagsMutuallyExclusive("config", "interface")
	cmd.RunE = func(*cobra.Command, []string) error { return o.run(e) }
	return cmd
}

func (o preflightOptions) run(e env) error {
	interfaces, pins, needs := o.interfaces, balancer.PinRoot, preflight.Needs{IPVS: preflight.Optional}
	if o.config != "" {
		conf, err := config.Load(o.config, config.Parser(plane.Limits()))
		if err != nil {
			return printedConfigError(e, err)
		}
		interfaces, needs = conf.Node.Interfaces, balancer.Needs(conf)
		pins = balancer.PinFolder(conf.Node.Name)
	} else if len(interfaces) == 0 {
		var err error
		if interfaces, err = interfacesUp(); err != nil {
			return err
		}
	}
	facts, err := preflight.Collect(interfaces, pins)
	if err != nil {
		return err
	}
	if needs.IPVS != preflight.Required {
		facts.ProgramErr = plane.TryXDP(needs.QUIC)
	}
	findings := preflight.Check(facts, needs)
	if o.output.Table() {
		err = preflight.WriteTable(e.stdout, findings)
	} else {
		err = o.output.Print(e.stdout, findings)
	}
	if err != nil {
		return err
	}
	if preflight.Failed(findings) {
		return cli.ExitStatus(1)
	}
	return nil
}

// interfacesUp are the interfaces of this network namespace that are up,
// without the loopback.
func interfacesUp() ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			names = append(names, i.Name)
		}
	}
	return names, nil
}
