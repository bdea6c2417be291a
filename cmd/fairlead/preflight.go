// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"log/slog"
	"net"
	"path/filepath"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/preflight"
	"fairlead.io/fairlead/internal/source/file"
)

// preflightOptions are the flags of "preflight".
type preflightOptions struct {
	config     string
	interfaces []string
	output     output
}

func newPreflightCommand(e env) *cobra.Command {
	var o preflightOptions
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Show what this kernel and its interfaces can do, and what to set",
		Long: `Show what this kernel and its interfaces can do for a balancer, what is missing
and how to set it right. The interfaces are those of a configuration file, those
that are named, or else all that are up. Nothing is changed. The exit status is
1 if an agent could not run.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", "", "look at what this configuration file needs")
	flags.StringSliceVar(&o.interfaces, "interface", nil, "look at this interface (may be repeated)")
	o.output.register(flags)
	cmd.MarkFlagsMutuallyExclusive("config", "interface")
	cmd.RunE = func(*cobra.Command, []string) error { return o.run(e) }
	return cmd
}

func (o preflightOptions) run(e env) error {
	interfaces, pins, needs := o.interfaces, pinRoot, preflight.Needs{}
	if o.config != "" {
		source, err := openConfig(e, o.config, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		config := source.Config()
		interfaces, needs = config.Node.Interfaces, needsOf(config)
		pins = filepath.Join(pinRoot, config.Node.Name)
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
	findings := preflight.Check(facts, needs)
	if err := o.print(e, findings); err != nil {
		return err
	}
	if preflight.Failed(findings) {
		return exitError(1)
	}
	return nil
}

func (o preflightOptions) print(e env, findings []preflight.Finding) error {
	if o.output == outputTable {
		return preflight.WriteTable(e.stdout, findings)
	}
	encoder := json.NewEncoder(e.stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(findings)
}

// needsOf says what a configuration asks of the machine.
func needsOf(config *file.Config) preflight.Needs {
	needs := preflight.Needs{Native: config.Dataplane.XDPMode == file.XDPNative}
	for _, s := range config.Services {
		needs.VLAN = needs.VLAN || s.Segment.Type == lb.SegmentVLAN
		needs.Probes = needs.Probes || s.Health != nil && s.Forward.DSR() && s.Address.Is4()
		for _, b := range s.Backends {
			needs.VLAN = needs.VLAN || b.Segment.Type == lb.SegmentVLAN
		}
	}
	return needs
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
