// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/observe"
)

func newServicesCommand(e env) *cobra.Command {
	var r reader
	cmd := &cobra.Command{
		Use:   "services",
		Short: "Show the services: what is balanced, how much, and what is wrong",
		Args:  cobra.NoArgs,
	}
	r.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := observe.Dial(r.socket).Services(cmd.Context())
		if err != nil {
			return err
		}
		return printAnswer(e.stdout, r.output, answer, observe.WriteServices)
	}
	return cmd
}
