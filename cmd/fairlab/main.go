// SPDX-License-Identifier: Apache-2.0

// Command fairlab is the laboratory: network-namespace labs, benchmarks and the demo. It
// starts fairlead, which has to be in its directory or in PATH.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.io/fairlead/internal/version"
	"fairlead.io/fairlead/lab/demo"
	"fairlead.io/fairlead/lab/netlab"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "fairlab:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := useSiblings(); err != nil {
		return err
	}
	return newCommand(env{stdout: os.Stdout, stderr: os.Stderr}).ExecuteContext(ctx)
}

// env holds the streams of a command, so that tests can run it.
type env struct {
	stdout, stderr io.Writer
}

// newCommand returns the root command.
func newCommand(e env) *cobra.Command {
	root := &cobra.Command{
		Use:           "fairlab",
		Short:         "Labs, benchmarks and the demo of the load balancer Fairlead",
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.AddCommand(newBenchCommand(e), newDemoCommand(e), newLabCommand(e))
	return root
}

// useSiblings puts the directory of this executable first in PATH: labs start fairlead
// and fairlab by name, and "make build" puts both into one directory.
func useSiblings() error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	return os.Setenv("PATH", filepath.Dir(executable)+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// output is the value of the flag -o.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
)

// String implements pflag.Value.
func (o *output) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *output) Type() string { return "table|json" }

// Set implements pflag.Value.
func (o *output) Set(text string) error {
	if text != string(outputTable) && text != string(outputJSON) {
		return fmt.Errorf("unknown output %q: want %s or %s", text, outputTable, outputJSON)
	}
	*o = output(text)
	return nil
}

func (o *output) register(flags *pflag.FlagSet) {
	*o = outputTable
	flags.VarP(o, "output", "o", "output format")
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func newDemoCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Bring up a lab, send real requests through it, show what happens, remove it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := demo.Demo{Labs: netlab.Labs{Dir: netlab.DefaultDir}, Name: fmt.Sprintf("demo-%d", os.Getpid()), Out: e.stdout}
			return d.Run(cmd.Context())
		},
	}
}
