// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.io/fairlead/internal/bench"
)

// benchOptions are the flags that all measurements have.
type benchOptions struct {
	quick  bool
	output output
}

func (o *benchOptions) register(flags *pflag.FlagSet) {
	flags.BoolVar(&o.quick, "quick", false, "measure less, in under a minute")
	o.output.register(flags)
}

// print writes the report to standard output.
func (o *benchOptions) print(e env, report *bench.Report) error {
	if o.output == outputJSON {
		return report.WriteJSON(e.stdout)
	}
	return report.WriteTable(e.stdout)
}

// benchProgress tells the user what a measurement is doing.
func benchProgress(e env) func(string) {
	return func(line string) { fmt.Fprintln(e.stderr, line) }
}

func newBenchCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what Fairlead claims about itself",
		Long: `Measure what Fairlead claims about itself, beside what it is compared with, in
one run on this machine. The report goes to standard output, as a table or as
one JSON object; progress goes to standard error. Root is needed.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newBenchChurnCommand(e), newBenchECMPCommand(e), newBenchForwardCommand(e),
		newBenchHealthCommand(e), newBenchHealthServersCommand(e), newBenchKubernetesCommand(e), newBenchPacketCommand(e))
	return cmd
}
