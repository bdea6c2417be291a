// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/observe"
)

func newReloadCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make the agent read its configuration now",
		Long: `Make the agent read its configuration now, and return when all services have
been programmed or have failed ("fairlead services" tells). A bad file is
refused whole: its errors are printed and nothing changes.`,
		Args: cobra.NoArgs,
	}
	registerSocket(cmd.Flags(), &socket)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return observe.Dial(socket).Reload(cmd.Context())
	}
	return cmd
}
