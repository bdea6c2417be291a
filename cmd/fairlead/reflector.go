// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/bgp/reflector"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source/file"
)

const (
	defaultReflectorConfig = "/etc/fairlead/reflector.yaml"
	defaultReflectorSocket = "/run/fairlead/reflector.sock"
)

// reflectorOptions are the flags of "reflector".
type reflectorOptions struct {
	config, socket string
	format         logFormat
}

func newReflectorCommand(e env) *cobra.Command {
	o := reflectorOptions{format: logText}
	cmd := &cobra.Command{
		Use:   "reflector",
		Short: "Pass on what many balancers announce to routers (BGP route reflector)",
		Long: `Pass on what many balancers announce to routers, which know only one neighbour:
a BGP route reflector (RFC 4456) that takes clients from ranges of addresses and
tells routers every client's path (RFC 7911). The file is followed as it changes;
SIGHUP and "fairlead reload" read it at once.

A reflector that ends, by SIGTERM too, takes no route off the routers: they keep
what they know for the router's restartTime (graceful restart), in which the next
reflector takes over. "fairlead routes" and "fairlead status" with its --socket
show it.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", defaultReflectorConfig, "configuration file")
	flags.StringVar(&o.socket, "socket", defaultReflectorSocket, "the reflector's control socket; beside it is the list of clients that it had")
	flags.Var(&o.format, "log-format", "text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.run(cmd.Context(), e, o.format.logger(e.stderr))
	}
	return cmd
}

// run wires a reflector and runs it until a signal ends it.
func (o reflectorOptions) run(ctx context.Context, e env, log *slog.Logger) (err error) {
	started := time.Now()
	source, err := file.OpenReflector(o.config, log)
	if err != nil {
		return printed(e, err)
	}
	claim, err := observe.ClaimSocket(o.socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claim.Release()) }()
	config := source.Config()
	page, err := listenPage(config.Observe, log)
	if err != nil {
		return err
	}
	if page != nil {
		defer page.Close() // if nothing comes to serving it
	}
	core, err := reflector.Start(ctx, config.BGP, reflector.Options{Book: o.socket + ".clients", Log: log})
	if err != nil {
		return err
	}
	defer func() {
		core.Close()
		log.Info("reflector stopped, routers keep their routes for their restart time")
	}()
	return newReflectorProcess(started, source, core, page, log).run(ctx, claim)
}
