// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/spf13/cobra"

func newBenchCommand(e env) *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measurements and reports"}
	cmd.AddCommand(newBenchChurnCommand(e))
	return cmd
}
