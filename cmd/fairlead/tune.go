// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/host/tune"
)

// tuneOptions are the flags of "tune".
type tuneOptions struct {
	interfaces []string
	profile    cli.Choice
	yes        bool
	save, undo string
	output     cli.Output
}

func newTuneCommand(e env) *cobra.Command {
	o := tuneOptions{profile: cli.NewChoice("", string(tune.XDP), string(tune.Kernel), string(tune.Server))}
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Show and change which CPUs handle packets",
		Long: `Show which CPUs handle the packets of interfaces (channels, interrupts, RPS, RFS, XPS,
offloads), and values for a use of the machine: xdp is a balancer with native XDP,
kernel one with IPVS, iptables or generic XDP, server a backend or a proxy. Without
--apply the values are for xdp.

--apply writes nothing without --yes. With it, the former values are first written to
a file, from which --undo restores them. A reboot restores the kernel's own values.`,
		Example: `  fairlead tune --interface eth0
  fairlead tune --interface eth0 --apply kernel
  fairlead tune --interface eth0 --apply kernel --yes --save /run/eth0.json
  fairlead tune --undo /run/eth0.json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.interfaces, "interface", nil, "interface to show or change (may be repeated)")
	o.profile.Register(cmd, "apply", "", "show what this profile changes, and change it with --yes")
	flags.BoolVar(&o.yes, "yes", false, "write the values of --apply")
	flags.StringVar(&o.save, "save", "", "file for the former values (default /run/fairlead/tune-TIME.json)")
	flags.StringVar(&o.undo, "undo", "", "restore the values of this file")
	o.output.Register(cmd)
	cli.Complete(cmd, "interface", completeInterfaces)
	cli.Complete(cmd, "save", completeFiles)
	cli.Complete(cmd, "undo", completeFiles)
	for _, other := range []string{"interface", "apply", "output"} {
		cmd.MarkFlagsMutuallyExclusive("undo", other)
	}
	cmd.RunE = func(*cobra.Command, []string) error { return o.run(e) }
	return cmd
}

func (o tuneOptions) run(e env) error {
	apply := o.profile.String() != ""
	switch {
	case o.yes && !apply, o.save != "" && !o.yes:
		return cli.Usagef("--yes: only with --apply, and --save: only with --yes")
	case o.undo == "" && len(o.interfaces) == 0:
		return cli.Usagef("--interface: none")
	}
	system, closeSystem, err := tune.Open()
	if err != nil {
		return err
	}
	defer closeSystem()
	if o.undo != "" {
		return system.Undo(o.undo)
	}
	profile := tune.Profile(cmp.Or(o.profile.String(), string(tune.XDP)))
	file := cmp.Or(o.save, "/run/fairlead/tune-"+time.Now().UTC().Format("20060102T150405")+".json")
	_, absent := os.Stat(file)
	var settings []tune.Setting
	if o.yes {
		settings, err = system.Apply(profile, o.interfaces, file)
	} else {
		settings, err = system.Show(profile, o.interfaces)
	}
	if settings == nil {
		return err
	}
	if _, missing := os.Stat(file); absent != nil && missing == nil {
		fmt.Fprintln(e.stderr, "undo: fairlead tune --undo", file)
	} else if apply && !o.yes {
		fmt.Fprintln(e.stderr, "nothing is changed without --yes")
	}
	if o.output.Table() {
		return errors.Join(err, tune.WriteTable(e.stdout, settings)) // the others may have been changed
	}
	return errors.Join(err, o.output.Print(e.stdout, settings))
}
