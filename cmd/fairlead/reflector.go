// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/reflector"
)

const (
	defaultReflectorConfig = "/etc/fairlead/reflector.yaml"
	defaultReflectorSocket = "/run/fairlead/reflector.sock"
)

func newReflectorCommand(e env) *cobra.Command {
	var config, socket string
	var log logFlags
	cmd := &cobra.Command{
		Use:   "reflector",
		Short: "Run a BGP route reflector between many balancers and their routers",
		Long: `Run a BGP route reflector (RFC 4456), so that routers have one peer instead of many
balancers. It accepts clients from address ranges and advertises every client's path
to the routers (RFC 7911). The reflector applies its file whenever it changes;
SIGHUP and "fairlead reload" apply it at once.

A reflector that ends, also by SIGTERM, withdraws nothing: the routers keep its
routes for the router's restartTime (graceful restart), until the next reflector
takes over. "fairlead routes" and "fairlead status" with its --socket show it.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&config, "config", defaultReflectorConfig, "configuration file")
	registerSocket(cmd, &socket, defaultReflectorSocket, "the reflector's control socket; the list of known clients is kept next to it")
	log.register(cmd)
	cli.Complete(cmd, "config", completeFiles)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return printedConfigError(e, reflector.Run(cmd.Context(), config, socket, log.logger(e.stderr)))
	}
	return cmd
}
