// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/tunnel"
)

func newNodeCommand(e env) *cobra.Command {
	var device, ready string
	var vips, balancers []string
	var log logFlags
	loopback := false
	cmd := &cobra.Command{
		Use:   "node",
		Short: "End the balancers' tunnels on a worker",
		Long: `End the balancers' tunnels on a worker that has no tunnel device: decapsulate
packets of the modes ipip and gue and pass them to the kernel, until SIGTERM. The
VIPs must be on a loopback of the worker.`,
		Example: "  fairlead node --interface eth0 --vip 10.1.1.1:80/tcp --balancer 10.0.2.0/24",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&device, "interface", "", "interface on which the balancers' packets arrive (required)")
	flags.StringSliceVar(&vips, "vip", nil, "VIP of this worker, as address:port/protocol (required; may be repeated)")
	flags.StringSliceVar(&balancers, "balancer", nil, "prefix of the balancers' addresses; other tunnels are not ended (required; may be repeated)")
	flags.StringVar(&ready, "ready", "", "address:port that answers HTTP requests once tunnels are ended, for a readiness probe")
	flags.BoolVar(&loopback, "loopback", false, "put the VIPs on the loopback while the command runs, as in a pod")
	log.register(cmd)
	cli.Complete(cmd, "interface", completeInterfaces)
	for _, name := range []string{"interface", "vip", "balancer"} {
		_ = cmd.MarkFlagRequired(name) // fails only for a flag that isn't there
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		services, err := parseEach("vip", vips, lb.ParseVIP)
		if err != nil {
			return err
		}
		prefixes, err := parseEach("balancer", balancers, netip.ParsePrefix)
		if err != nil {
			return err
		}
		return tunnel.End(cmd.Context(), device, services, prefixes, loopback, ready, log.logger(e.stderr))
	}
	return cmd
}

// parseEach reads the values of a flag.
func parseEach[T any](flag string, texts []string, parse func(string) (T, error)) ([]T, error) {
	values := make([]T, len(texts))
	for i, text := range texts {
		value, err := parse(text)
		if err != nil {
			return nil, cli.Usagef("--%s: %w", flag, err)
		}
		values[i] = value
	}
	return values, nil
}
