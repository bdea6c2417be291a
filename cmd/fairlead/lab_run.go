// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/netlab"
)

// newLabExecCommand replaces fairlead by the command, so that the terminal,
// signals and the exit status are the command's own.
func newLabExecCommand(labs netlab.Labs) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "exec NAME HOST -- CMD…",
		Short:   "Run a command in a host's network namespace",
		Example: "  fairlead lab exec try client -- curl http://10.1.1.1/",
		Args:    cobra.MinimumNArgs(3),
		RunE: func(_ *cobra.Command, args []string) error {
			lab, err := labs.Open(args[0])
			if err != nil {
				return err
			}
			command := args[2:]
			if command[0] == "--" && len(command) > 1 {
				command = command[1:]
			}
			return lab.Exec(args[1], command, os.Environ())
		},
	}
	// The command's own flags are not fairlead's, also without the dashes.
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// newLabEchoCommand is what runs in a lab's servers for the service "echo".
func newLabEchoCommand() *cobra.Command {
	var name string
	var listen []string
	cmd := &cobra.Command{
		Use:    "echo",
		Short:  "Answer UDP datagrams and lines over TCP with a name and what they hold",
		Args:   cobra.NoArgs,
		Hidden: true,
	}
	cmd.Flags().StringVar(&name, "name", "", "name to answer with")
	cmd.Flags().StringArrayVar(&listen, "listen", nil, "address and port to answer at; can be repeated")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var addresses []netip.AddrPort
		for _, text := range listen {
			address, err := netip.ParseAddrPort(text)
			if err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			addresses = append(addresses, address)
		}
		return netlab.Echo(cmd.Context(), name, addresses)
	}
	return cmd
}
