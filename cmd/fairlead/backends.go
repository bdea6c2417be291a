// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/observe"
)

func newBackendsCommand(e env) *cobra.Command {
	var r reader
	cmd := &cobra.Command{
		Use:   "backends [SERVICE]",
		Short: "Show the backends of one service or of all",
		Args:  cobra.MaximumNArgs(1),
	}
	r.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		service := ""
		if len(args) > 0 {
			service = args[0]
		}
		answer, err := observe.Dial(r.socket).Backends(cmd.Context(), service)
		if err != nil {
			return err
		}
		return printAnswer(e.stdout, r.output, answer, observe.WriteBackends)
	}
	return cmd
}
