// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/observe"
)

func newRoutesCommand(e env) *cobra.Command {
	var r reader
	cmd := &cobra.Command{
		Use:   "routes",
		Short: "Show the routes: what is announced to whom, since when, and why not",
		Long: `Show which prefixes are announced by BGP for which services, to whom and since
when, and why the others are not; and how the sessions with the peers are.`,
		Args: cobra.NoArgs,
	}
	r.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := observe.Dial(r.socket).Routes(cmd.Context())
		if err != nil {
			return err
		}
		return printAnswer(e.stdout, r.output, answer, func(w io.Writer, routes observe.Routes) error {
			return observe.WriteRoutes(w, routes, time.Now())
		})
	}
	return cmd
}
