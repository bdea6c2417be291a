// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/demo"
	"fairlead.io/fairlead/internal/netlab"
)

func newLabDemoCommand(e env, labs netlab.Labs) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Bring up a lab, send real requests through it, show what happens, remove it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fairlead, err := os.Executable()
			if err != nil {
				return err
			}
			labs.Progress = nil // the demo tells its own story
			d := demo.Demo{Labs: labs, Fairlead: fairlead, Name: fmt.Sprintf("demo-%d", os.Getpid()), Out: e.stdout}
			return d.Run(cmd.Context())
		},
	}
}
