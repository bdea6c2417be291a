// SPDX-License-Identifier: Apache-2.0

// Command fairlab is the laboratory: network-namespace labs, benchmarks and the demo. It
// starts fairlead, which has to be in its directory or in PATH.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/version"
	"fairlead.io/fairlead/lab/demo"
	"fairlead.io/fairlead/lab/netlab"
)

func main() {
	os.Exit(run(os.Args[1:], env{stdout: os.Stdout, stderr: os.Stderr}))
}

// run executes one command line and returns the process's exit status.
func run(args []string, e env) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := useSiblings(); err != nil {
		fmt.Fprintln(e.stderr, "fairlab:", err)
		return 1
	}
	return cli.Run(ctx, newCommand(e), args, e.stderr)
}

// env holds the streams of a command, so that tests can run it.
type env struct {
	stdout, stderr io.Writer
}

// newCommand returns the root command.
func newCommand(e env) *cobra.Command {
	root := &cobra.Command{
		Use:     "fairlab",
		Short:   "Labs, benchmarks and the demo of the load balancer Fairlead",
		Version: version.String(),
	}
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.AddCommand(newBenchCommand(e), newDemoCommand(e), newLabCommand(e), cli.NewManCommand())
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
