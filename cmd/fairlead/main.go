// SPDX-License-Identifier: Apache-2.0

// Command fairlead is the product: balancer node, controller, API for clouds, route
// reflector, tunnel end of a worker, and the commands that show and change them. As
// kubectl-fairlead it is the plugin of kubectl that does so on all nodes of a cluster. It
// parses flags, calls packages of internal/ and prints.
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
)

// env is a command's access to the outside world, so that tests can run commands.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

func main() {
	e := env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	if filepath.Base(os.Args[0]) == pluginName {
		os.Exit(run(newPluginCommand(e), os.Args[1:], e))
	}
	os.Exit(run(newRootCommand(e), os.Args[1:], e))
}

// run executes one command line until a signal ends it, and returns the process's exit
// status.
func run(root *cobra.Command, args []string, e env) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Run(ctx, root, args, e.stderr)
}

func newRootCommand(e env) *cobra.Command {
	root := &cobra.Command{
		Use:     "fairlead",
		Short:   "Layer-4 load balancer for container clusters",
		Version: version.String(),
	}
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.AddCommand(
		newAgentCommand(e),
		newAPIServerCommand(e),
		newBackendsCommand(e),
		newConfigCommand(e),
		newControllerCommand(e),
		newDrainCommand(e),
		newDrainsCommand(e),
		newFlowsCommand(e),
		cli.NewManCommand(),
		newNodeCommand(e),
		newPreflightCommand(e),
		newReflectorCommand(e),
		newReloadCommand(),
		newRoutesCommand(e),
		newServicesCommand(e),
		newStatusCommand(e),
		newTopCommand(e),
		newTraceCommand(e),
		newTuneCommand(e),
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
