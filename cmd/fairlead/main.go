// SPDX-License-Identifier: Apache-2.0

// Command fairlead is the product: balancer node, controller, route reflector, tunnel
// end of a worker, and the commands that show and change them. It parses flags, calls
// packages of internal/ and prints.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/version"
)

// env is what a command touches of the outside world, so that commands can be
// run by tests.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// exitError ends the command with a status of its own; its error has been
// printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	os.Exit(run(os.Args[1:], env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}))
}

// run executes one command line and returns the process's exit status.
func run(args []string, e env) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	root := newRootCommand(e)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	default:
		fmt.Fprintln(e.stderr, "fairlead:", err)
		return 1
	}
}

func newRootCommand(e env) *cobra.Command {
	root := &cobra.Command{
		Use:           "fairlead",
		Short:         "Layer-4 load balancer for container clusters",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.AddCommand(
		newAgentCommand(e),
		newBackendsCommand(e),
		newConfigCommand(e),
		newControllerCommand(e),
		newDrainCommand(e),
		newDrainsCommand(e),
		newFlowsCommand(e),
		newNodeCommand(e),
		newPreflightCommand(e),
		newReflectorCommand(e),
		newReloadCommand(),
		newRoutesCommand(e),
		newServicesCommand(e),
		newStatusCommand(e),
		newTopCommand(e),
		newTraceCommand(e),
		newUndrainCommand(e),
		newVersionCommand(e),
	)
	return root
}

func newVersionCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the compiler",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(e.stdout, "fairlead", version.String())
			return err
		},
	}
}
