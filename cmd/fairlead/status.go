// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/observe"
)

func newStatusCommand(e env) *cobra.Command {
	var r reader
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the agent: configuration, interfaces, counters",
		Args:  cobra.NoArgs,
	}
	r.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := observe.Dial(r.socket).Status(cmd.Context())
		if err != nil {
			return err
		}
		return printAnswer(e.stdout, r.output, answer, func(w io.Writer, s observe.Status) error {
			return observe.WriteStatus(w, s, time.Now())
		})
	}
	return cmd
}
