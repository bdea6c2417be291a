// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/lab/bench/page"
)

func newBenchReportCommand(e env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Write reports as one HTML page, with the claims of papers",
		Long: `Write the reports of a folder (JSON, as docs/reports has) as one HTML page that
needs no network: plots, and each figure and table of the papers that Fairlead
follows, with the verdict on each of their claims.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file of the page (default: standard output)")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		var text bytes.Buffer
		if err := page.Write(&text, args[0]); err != nil {
			return err
		}
		if output == "" {
			_, err := text.WriteTo(e.stdout)
			return err
		}
		return os.WriteFile(output, text.Bytes(), 0o644)
	}
	return cmd
}
